"""Words and characters with the times at which they are heard, as several services tell them."""

import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from app.api.schemas import NDJSON
from app.api.speech.body_formats import BodyFormat
from app.engine.core import AudioChunk, SpeechResult
from app.engine.results import WordTimes


class FinalWords:
    """Holds words back until their end is known; each is given once, in order."""

    def __init__(self) -> None:
        self._held: dict[tuple[int, int], WordTimes] = {}

    def add(self, words: Sequence[WordTimes]) -> list[WordTimes]:
        """Take the words of a chunk; return those that will not change."""
        self._held |= {(word.utterance, word.index): word for word in words}
        ready = [key for key, word in self._held.items() if word.end_s is not None]
        return [self._held.pop(key) for key in ready]


class TimedCharacter(NamedTuple):
    """A character of a text, and when it is heard in the audio sent; in seconds."""

    character: str
    start_s: float
    end_s: float


def timed_characters(
    words: Iterable[WordTimes], speed: float, *, normalised: bool = False
) -> list[TimedCharacter]:
    """Return the characters of words, which share its time evenly, with a space after each.

    They are those that are spoken if ``normalised``, else those written; missing words have none.
    """
    characters: list[TimedCharacter] = []
    for word in words:
        if word.missing:
            continue
        start_s = word.start_s / speed
        end_s = start_s if word.end_s is None else word.end_s / speed
        text = (word.spoken if normalised else "") or word.shown
        each_s = (end_s - start_s) / max(1, len(text))
        characters += [
            TimedCharacter(one, start_s + number * each_s, start_s + (number + 1) * each_s)
            for number, one in enumerate(text)
        ]
        characters.append(TimedCharacter(" ", end_s, end_s))
    return characters


class TimedJson(BodyFormat):
    """A JSON object that ``part`` makes of the file and the words; streamed, an object a line."""

    def __init__(
        self, part: Callable[[bytes, list[WordTimes]], dict[str, Any]], *, streamed: bool
    ) -> None:
        super().__init__(NDJSON if streamed else "application/json")
        self._part = part
        self._final = FinalWords()
        self._next: list[WordTimes] = []

    def before(self, chunk: AudioChunk) -> bytes:
        """Note the words of a chunk, for the line with the next bytes."""
        self._next += self._final.add(chunk.words)
        return b""

    def sound(self, part: bytes) -> bytes:
        """Return the line with the next bytes of the file."""
        words = self._next
        self._next = []
        return self._json(part, words) + b"\n"

    def done(self, result: SpeechResult, audio_s: float) -> bytes:  # noqa: ARG002
        """Return the line with the words that are left, if there are any."""
        return self.sound(b"") if self._next else b""

    def whole(self, file: bytes, result: SpeechResult, audio_s: float) -> bytes:  # noqa: ARG002
        """Return the object with a whole file and all words; see `BodyFormat.whole`."""
        return self._json(file, [word for one in result.utterances for word in one.words or ()])

    def _json(self, sound: bytes, words: list[WordTimes]) -> bytes:
        return json.dumps(self._part(sound, words)).encode()

"""JSON with the bytes of a speech's file and its words: one object, or one a line."""

import json
from collections.abc import Callable, Sequence
from typing import Any

from app.api.responses import NDJSON
from app.api.speech.framing import Framing
from app.engine.job import AudioChunk, SpeechResult, WordTimes


class FinalWords:
    """Holds words back until their end is known; each is given once, in order."""

    def __init__(self) -> None:
        self._held: dict[tuple[int, int], WordTimes] = {}

    def add(self, words: Sequence[WordTimes]) -> list[WordTimes]:
        """Take words as chunks tell them; return those that will not change."""
        self._held |= {(word.utterance, word.index): word for word in words}
        ready = [key for key, word in self._held.items() if word.end_s is not None]
        return [self._held.pop(key) for key in ready]


class TimedJson(Framing):
    """A JSON object with the file and the times of words; streamed, an object a line.

    Args:
        told: Returns the object for bytes of the file and words.
    """

    def __init__(
        self, told: Callable[[bytes, list[WordTimes]], dict[str, Any]], *, streamed: bool
    ) -> None:
        super().__init__(NDJSON if streamed else "application/json")
        self._told = told
        self._final = FinalWords()
        self._untold: list[WordTimes] = []

    def before(self, chunk: AudioChunk) -> bytes:
        """Note the words of a chunk, for the line with the next bytes."""
        self._untold += self._final.add(chunk.words)
        return b""

    def sound(self, part: bytes) -> bytes:
        """Return the line with the next bytes of the file."""
        words, self._untold = self._untold, []
        return self._json(part, words) + b"\n"

    def done(self, result: SpeechResult, audio_s: float) -> bytes:  # noqa: ARG002
        """Return the line with the words that are left, if there are any."""
        return self.sound(b"") if self._untold else b""

    def whole(self, file: bytes, result: SpeechResult, audio_s: float) -> bytes:  # noqa: ARG002
        """Return the object with a whole file and all words; see `Framing.whole`."""
        return self._json(file, [word for one in result.utterances for word in one.words or ()])

    def _json(self, part: bytes, words: list[WordTimes]) -> bytes:
        return json.dumps(self._told(part, words)).encode()

"""The voices of a text as the model hears them: with their prompts, and what those say."""

from collections.abc import Callable, Sequence
from contextlib import closing

from app.engine.backend.encoder import AudioEncoder
from app.engine.core import PromptedVoice
from app.engine.errors import InvalidRequest, UnknownVoice, VoiceDamaged
from app.engine.reading import TextProcess
from app.engine.voices import Voices
from models.config import ModelConfig
from models.text import FrontEnd, TextError, Utterance
from models.voices.voice import Voice

MOST_SPEAKERS = 8
"""Voices that one text may name: each may have to be encoded."""

MAX_TRANSCRIPT = 1_000
"""Characters of what a voice's audio file says."""

_CACHED_TRANSCRIPTS = 256


class Speakers:
    """Prompts voices for one model. One thread only, the planner's."""

    def __init__(
        self,
        config: ModelConfig,
        voices: Voices,
        encoder: AudioEncoder,
        front_end: FrontEnd,
        reader: TextProcess | FrontEnd,
    ) -> None:
        self._config = config
        self._voices = voices
        self._encoder = encoder
        self._front_end = front_end
        self._reader = reader
        # Ids of what the audio files of voices say, by the voices' keys
        self._transcripts: dict[tuple[str | None, str], Sequence[int]] = {}

    def speaker(self, voice: Voice) -> PromptedVoice:
        """Return a voice with its prompt, and what that says where the model reads it."""
        prompt = self._encoder.prompt(voice)
        if self._config.prompt == "segment":
            return PromptedVoice(voice, prompt)
        if prompt is None:
            if not self._config.start_token:
                raise InvalidRequest(
                    f"the model goes on from a recording, and the voice {voice.name!r} has none",
                    param="voice",
                )
            return PromptedVoice(voice)
        return PromptedVoice(voice, prompt, self._said(voice))

    def _said(self, voice: Voice) -> Sequence[int]:
        """Return the ids of what a voice's recording says."""
        key = voice.owner, voice.key
        if key not in self._transcripts:
            if not (voice.transcript or "").strip():
                raise InvalidRequest(
                    f"the model goes on from what a recording says, and of the voice {voice.name!r}"
                    " nobody told: upload it again with its words as `transcript`",
                    param="voice",
                )
            if len(self._transcripts) >= _CACHED_TRANSCRIPTS:
                self._transcripts.pop(next(iter(self._transcripts)))
            self._transcripts[key] = self._transcribed(voice)
        return self._transcripts[key]

    def _transcribed(self, voice: Voice) -> Sequence[int]:
        language = self._voices.language(voice.language)
        try:
            prepared = self._reader.prepared(
                voice.transcript or "", language=language, max_chars=MAX_TRANSCRIPT
            )
            with closing(prepared) as pieces:
                read = [one for one in pieces if one is not None]
        except TextError as error:
            raise InvalidRequest(
                f"the transcript of the voice {voice.name!r} cannot be read: {error}", param="voice"
            ) from error
        phonemes = " ".join(one.phonemes for part in read for one in part.utterances)
        return self._front_end.encode(phonemes, language)


def voices_by_name(
    utterances: Sequence[Utterance], find: Callable[[str], Voice]
) -> dict[str, Voice]:
    """Return the voices that a text names, in lower case; ``find`` returns that of a name.

    Raises InvalidRequest if one is not there, or if they are too many.
    """
    names = dict.fromkeys(one.voice.lower() for one in utterances if one.voice is not None)
    if len(names) > MOST_SPEAKERS:
        raise InvalidRequest(
            f"the text names {len(names)} voices, at most {MOST_SPEAKERS} may speak",
            param="input",
        )
    voices: dict[str, Voice] = {}
    for name in names:
        try:
            voices[name] = find(name)
        except (UnknownVoice, VoiceDamaged) as error:
            raise InvalidRequest(f"[voice:{name}]: {error.message}", param="input") from error
    return voices

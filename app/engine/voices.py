"""Who the loaded model can speak as: the voices it came with, and those that were uploaded."""

import logging
from collections.abc import Iterator
from statistics import fmean
from typing import Final

from app.engine.errors import (
    InvalidRequest,
    Unavailable,
    UnknownVoice,
    VoiceDamaged,
    VoiceExists,
    VoiceLimit,
    VoiceProtected,
)
from app.voice_store import EVERYBODY, CardDamaged, NameTaken, StoreFull, VoiceStore
from models.voices.recording import RecordingError, read_recording
from models.voices.voice import DEFAULT, BuiltinVoices, Voice, VoiceCard

OPENAI_VOICES: Final = (
    "alloy",
    "ash",
    "ballad",
    "cedar",
    "coral",
    "echo",
    "fable",
    "marin",
    "nova",
    "onyx",
    "sage",
    "shimmer",
    "verse",
)
"""Names that OpenAI's clients send; they stand for built-in voices and cannot be taken."""

log = logging.getLogger(__name__)

_NAMES_TOLD = 20
_RETRY_AFTER_S = 30
_DAMAGED = "nothing can be read of the voice {!r}; delete it and upload it again"
_EXISTS = "there is a voice {!r} already; delete it or choose another name"


class Voices:
    """The voices of one loaded model, as each owner of keys sees them.

    What an owner uploaded comes before what is everybody's, and that before what came with the
    model, so that another model does not change who speaks.

    Attributes:
        builtin: Those that came with the model.
        prompt_s: Seconds of a voice that the model hears; 0 where it hears none.
    """

    def __init__(
        self,
        builtin: BuiltinVoices,
        store: VoiceStore | None = None,
        *,
        prompt_s: float = 0.0,
        languages: tuple[str, ...] = ("en",),
    ) -> None:
        """Take what there is.

        Args:
            builtin: The model's.
            store: Where uploads lie; None: there are none.
            prompt_s: Seconds of a voice that the model hears; 0 is none.
            languages: That the model speaks.
        """
        self.builtin, self.prompt_s = builtin, prompt_s
        self._store, self._languages = store, languages

    def __iter__(self) -> Iterator[Voice]:
        """Iterate over the voices that are everybody's."""
        return iter(self.of(EVERYBODY))

    @property
    def default(self) -> Voice:
        """The voice of a request that names none."""
        return self.builtin.default

    @property
    def aliases(self) -> dict[str, Voice]:
        """The built-in voices that answer to the names of OpenAI's, in turn, both by name."""
        builtin = list(self.builtin)
        return {
            name: builtin[number % len(builtin)]
            for number, name in enumerate(OPENAI_VOICES)
            if name not in self.builtin
        }

    def likely_lufs(self, voice: Voice) -> float | None:
        """Return how loud speech of a voice will likely be, or None where nobody has measured.

        The models speak at one level, whoever is imitated: an upload will be like the model's own.
        """
        if voice.speech_lufs is not None:
            return voice.speech_lufs
        measured = [one.speech_lufs for one in self.builtin if one.speech_lufs is not None]
        return fmean(measured) if measured else None

    def of(self, owner: str) -> list[Voice]:
        """Return the voices that an owner can speak as: the model's own first, then by name.

        Uploads are left out where the model hears no prompts. Reads files.
        """
        voices = {voice.name: voice for voice in self.builtin}
        if self._store is not None and self.prompt_s:
            for whose in dict.fromkeys((EVERYBODY, owner)):
                voices |= {voice.name: voice for voice in self._store.of(whose)}
        return list(voices.values())

    def damaged(self, owner: str) -> list[str]:
        """Return the names of an owner's uploads that can only be deleted. Reads files."""
        return [] if self._store is None else self._store.damaged(owner)

    def find(self, name: str, owner: str) -> Voice:
        """Return the voice that an owner means by a name, in whatever case. Reads files.

        Raises:
            UnknownVoice: There is none, or it is somebody else's.
            VoiceDamaged: It is an upload of which nothing can be read.
        """
        wanted, name = name, name.lower()
        if name == DEFAULT:
            return self.default
        if self._store is not None:
            for whose in dict.fromkeys((owner, EVERYBODY)):
                try:
                    voice = self._store.find(name, whose)
                except CardDamaged as error:
                    raise VoiceDamaged(_DAMAGED.format(name)) from error
                if voice is not None:
                    return voice
        if name in self.builtin:
            return self.builtin[name]
        if name in OPENAI_VOICES:
            return self.aliases[name]
        names = [voice.name for voice in self.of(owner)]
        more = f" and {len(names) - _NAMES_TOLD} more" if len(names) > _NAMES_TOLD else ""
        told = ", ".join(names[:_NAMES_TOLD])
        raise UnknownVoice(f"there is no voice {wanted[:64]!r}; there are: {told}{more}")

    def speaker(self, name: str | None, owner: str) -> Voice:
        """Return who speaks a job; an upload may be deleted while it is spoken. Reads files.

        Raises:
            UnknownVoice: There is no such voice.
            VoiceDamaged: Nothing can be read of it.
            InvalidRequest: The model cannot speak as somebody who was uploaded.
        """
        if name is None:
            return self.default
        voice = self.find(name, owner)
        if voice.owner is None:
            return voice
        if not self.prompt_s:
            raise InvalidRequest(
                f"the loaded model hears no prompts, so it cannot speak as {name!r}", param="voice"
            )
        assert self._store is not None
        opened = self._store.opened(voice)
        if opened is None:
            raise UnknownVoice(f"the voice {name!r} was deleted")
        return opened

    def check_new(self, name: str, language: str, owner: str) -> None:
        """Do nothing if a voice may be uploaded; to be asked before its audio is read.

        Raises:
            InvalidRequest: The model can do nothing with it.
            VoiceLimit: No more are taken.
            VoiceExists: The name is not free.
        """
        if self._store is None or not self._store.max_voices:
            raise VoiceLimit("this server takes no uploads")
        if not self.prompt_s:
            raise InvalidRequest(
                "the loaded model hears no prompts: it can only speak as the voices that it was"
                " trained on; load another model to upload a voice",
                param="file",
            )
        if language not in self._languages:
            spoken = ", ".join(self._languages)
            raise InvalidRequest(
                f"the model does not speak {language!r}, only {spoken}", param="language"
            )
        if name == DEFAULT or name in OPENAI_VOICES or name in self.builtin:
            raise VoiceExists(f"{name} is the name of a built-in voice; choose another")
        if any(self._store.has(name, whose) for whose in (owner, EVERYBODY)):
            raise VoiceExists(_EXISTS.format(name))

    def add(self, name: str, card: VoiceCard, content: bytes, owner: str) -> Voice:
        """Keep an uploaded voice. Takes a while: the audio is read and checked.

        Args:
            name: Plain, and not taken.
            card: What is said of it.
            content: Audio, as a file.
            owner: Whose it will be.

        Raises:
            InvalidRequest: The audio cannot be a voice, or the model can do nothing with it.
            VoiceLimit: No more are taken.
            VoiceExists: The name is not free; of several at once, one upload wins.
            Unavailable: It cannot be stored now.
        """
        self.check_new(name, card.language, owner)
        assert self._store is not None
        try:
            return self._store.add(name, owner, card, read_recording(content))
        except RecordingError as error:
            raise InvalidRequest(f"the audio cannot be a voice: {error}", param="file") from error
        except NameTaken as error:
            raise VoiceExists(_EXISTS.format(name)) from error
        except StoreFull as error:
            raise VoiceLimit(
                f"you have {self._store.max_voices} voices, and no more are taken; delete one"
            ) from error
        except OSError as error:
            raise Unavailable(_told(error), retry_after_s=_RETRY_AFTER_S) from error

    def remove(self, name: str, owner: str) -> None:
        """Delete an upload and its audio; what is being spoken with it goes on.

        Raises:
            UnknownVoice: There is none, or it is somebody else's.
            VoiceProtected: It is everybody's, but only its owner may delete it.
            Unavailable: It cannot be deleted now.
        """
        name, own = name.lower(), self._store is not None and self._store.has(name.lower(), owner)
        if not own:
            self._refuse_to_remove(name, owner)
        assert self._store is not None
        try:
            removed = self._store.remove(name, owner)
        except OSError as error:
            raise Unavailable(_told(error), retry_after_s=_RETRY_AFTER_S) from error
        if not removed:
            raise UnknownVoice(f"the voice {name!r} was deleted already")

    def _refuse_to_remove(self, name: str, owner: str) -> None:
        """Say why a voice that is not an owner's upload stays.

        Raises:
            UnknownVoice: There is none, or it is somebody else's.
            VoiceProtected: Always otherwise.
        """
        try:
            builtin = self.find(name, owner).owner is None
        except VoiceDamaged:
            builtin = False
        if builtin:
            raise VoiceProtected(f"{name} is a built-in voice, which cannot be deleted")
        raise VoiceProtected(f"{name} is everybody's; only the operator can delete it")


def _told(error: OSError) -> str:
    """Return what the caller may know; where the folder lies is for the log alone."""
    log.error("a voice cannot be stored or deleted: %s", error)
    return f"the folder of voices: {error.strerror or type(error).__name__}"

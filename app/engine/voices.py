"""The voices of the loaded model: those that came with it, and those that were uploaded."""

import logging
from collections.abc import Iterator, Mapping
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
from app.storage.files import StoreAway
from app.storage.voice_store import EVERYBODY, FilesDamaged, NameTaken, StoreFull, VoiceStore
from models.text.published.tags import find_language
from models.voices.recording import Recording
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

_NAMES_LISTED = 20
_RETRY_AFTER_S = 30
_DAMAGED = (
    "the voice {!r} is damaged: its files are not as they were stored; delete it and upload it"
)
_EXISTS = "there is a voice {!r} already; delete it or choose another name"


class Voices:
    """The voices of one loaded model, for each owner of keys; ``store`` has the uploads.

    Of several voices of one name, the owner's own upload comes first, then an upload for everybody,
    then the model's own: so another model does not change who speaks.
    """

    def __init__(
        self,
        builtin: BuiltinVoices,
        store: VoiceStore | None = None,
        *,
        prompt_s: float = 0.0,
        languages: tuple[str, ...] = ("en",),
        names: Mapping[str, str] | None = None,
    ) -> None:
        self.builtin = builtin
        self.prompt_s = prompt_s
        self._names = names or {}
        self._store = store
        self._languages = languages

    def __iter__(self) -> Iterator[Voice]:
        """Iterate over the voices that everybody can use."""
        return iter(self.of(EVERYBODY))

    @property
    def default(self) -> Voice:
        """The voice for requests that name none."""
        return self.builtin.default

    @property
    def aliases(self) -> dict[str, Voice]:
        """OpenAI's names of voices -> the built-in voices that stand for them, assigned in turn."""
        builtin = list(self.builtin)
        return {
            name: builtin[number % len(builtin)]
            for number, name in enumerate(OPENAI_VOICES)
            if name not in self.builtin
        }

    def named(self, owner: str) -> dict[str, Voice]:
        """Return every name that an owner's request may give -> its voice. Reads files.

        The names of voices come first, then OpenAI's, then the operator's; one whose voice does not
        exist is left out.
        """
        found = {voice.name: voice for voice in self.of(owner)}
        found |= self.aliases
        for name, target in self._names.items():
            voice = self.default if target == DEFAULT else found.get(target)
            if voice is not None and name not in found:
                found[name] = voice
        return found

    def language(self, asked: str | None, voice: Voice | None = None) -> str:
        """Return the model's language that a request means, as `en` for `en-US` or `English`.

        By default it is that of the voice. Raises InvalidRequest if the model does not speak it.
        """
        default = (voice or self.default).language
        found = find_language(asked, default, self._languages)
        if found is None:
            spoken = ", ".join(self._languages)
            raise InvalidRequest(
                f"the model does not speak {asked or default!r}, only {spoken}", param="language"
            )
        return found

    def likely_lufs(self, voice: Voice) -> float | None:
        """Return the expected loudness of a voice's speech in LUFS, or None if none was measured.

        The models speak at one level whatever the voice, so an upload gets the mean of the model's
        own voices.
        """
        if voice.speech_lufs is not None:
            return voice.speech_lufs
        measured = [one.speech_lufs for one in self.builtin if one.speech_lufs is not None]
        return fmean(measured) if measured else None

    def of(self, owner: str) -> list[Voice]:
        """Return the voices that an owner can use: the model's own first, then uploads by name.

        Without uploads if the model takes no prompts. Reads files.
        """
        voices = {voice.name: voice for voice in self.builtin}
        if self._store is not None and self.prompt_s:
            for whose in dict.fromkeys((EVERYBODY, owner)):
                voices |= {voice.name: voice for voice in self._store.of(whose)}
        return list(voices.values())

    def damaged(self, owner: str) -> list[str]:
        """Return the names of an owner's uploads that cannot be read. Reads files."""
        return [] if self._store is None else self._store.damaged(owner)

    def find(self, name: str, owner: str) -> Voice:
        """Return an owner's voice of a name, whose case is ignored. Reads files.

        Raises UnknownVoice if there is none, or it is somebody else's.
        """
        found = self._find(name.lower(), owner)
        if found is None and (target := self._names.get(name.lower())) is not None:
            found = self._find(target, owner)
        if found is not None:
            return found
        names = self._names_for(owner)
        more = f" and {len(names) - _NAMES_LISTED} more" if len(names) > _NAMES_LISTED else ""
        listed = ", ".join(names[:_NAMES_LISTED])
        mixed = ", and voices are not mixed" if "+" in name else ""
        raise UnknownVoice(f"there is no voice {name[:64]!r}{mixed}; there are: {listed}{more}")

    def _names_for(self, owner: str) -> list[str]:
        """Return the names of the voices that an owner can use; reads no voice's file."""
        names = dict.fromkeys(voice.name for voice in self.builtin)
        if self._store is not None and self.prompt_s:
            try:
                for whose in dict.fromkeys((EVERYBODY, owner)):
                    names |= dict.fromkeys(self._store.names_of(whose))
            except StoreAway as error:
                log.error("cannot list uploaded voices: %s", error)
        return list(names)

    def _find(self, name: str, owner: str) -> Voice | None:
        """Return an owner's voice of a name in lower case that is no alias of the operator's."""
        if name == DEFAULT:
            return self.default
        away: StoreAway | None = None
        if self._store is not None and name not in OPENAI_VOICES:
            for whose in dict.fromkeys((owner, EVERYBODY)):
                try:
                    voice = self._store.find(name, whose)
                except FilesDamaged as error:
                    raise VoiceDamaged(_DAMAGED.format(name)) from error
                except StoreAway as error:
                    away = error
                    break
                if voice is not None:
                    return voice
        found = self.builtin[name] if name in self.builtin else self.aliases.get(name)
        if found is None and away is not None:
            raise Unavailable(_described(away), retry_after_s=_RETRY_AFTER_S) from away
        return found

    def speaker(self, name: str | None, owner: str) -> Voice:
        """Return the voice for a job, with the audio of an upload in memory. Reads files.

        The upload may therefore be deleted while the job runs. Raises UnknownVoice if there is no
        such voice; of an upload InvalidRequest if the model takes no prompts, Unavailable if the
        store does not answer.
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
        try:
            opened = self._store.opened(voice)
        except FilesDamaged as error:
            raise VoiceDamaged(_DAMAGED.format(name)) from error
        except StoreAway as error:
            raise Unavailable(_described(error), retry_after_s=_RETRY_AFTER_S) from error
        if opened is None:
            raise UnknownVoice(f"the voice {name!r} was deleted")
        return opened

    def recording(self, name: str, owner: str) -> bytes:
        """Return the recording of a voice for a job, as FLAC. Reads files.

        Raises UnknownVoice if it has none: the model speaks unprompted.
        """
        voice = self.speaker(name, owner)
        if voice.recording is not None:
            return voice.recording
        if voice.audio is None:
            raise UnknownVoice(f"the voice {name!r} has no recording")
        return voice.audio.read_bytes()

    def check_new(self, name: str, language: str, owner: str) -> str:
        """Check that a voice can be uploaded, before its audio is read; return its language.

        Raises InvalidRequest if the model takes no prompts or does not speak the language,
        VoiceLimit if the server takes no uploads, VoiceExists if the name is taken.
        """
        if self._store is None or not self._store.max_voices:
            raise VoiceLimit("this server takes no uploads")
        if not self.prompt_s:
            raise InvalidRequest(
                "the loaded model hears no prompts: it can only speak as the voices that it was"
                " trained on; load another model to upload a voice",
                param="file",
            )
        language = self.language(language)
        if name == DEFAULT or name in OPENAI_VOICES or name in self.builtin:
            raise VoiceExists(f"{name} is the name of a built-in voice; choose another")
        if any(self._has(name, whose) for whose in (owner, EVERYBODY)):
            raise VoiceExists(_EXISTS.format(name))
        return language

    def _has(self, name: str, owner: str) -> bool:
        """Return whether an owner has an upload of a name."""
        try:
            return self._store is not None and self._store.has(name, owner)
        except StoreAway as error:
            raise Unavailable(_described(error), retry_after_s=_RETRY_AFTER_S) from error

    def add(
        self,
        name: str,
        card: VoiceCard,
        recording: Recording,
        owner: str,
    ) -> Voice:
        """Store an uploaded voice.

        Raises VoiceLimit if the owner has as many as are allowed, VoiceExists if the name is taken
        (of several uploads at once, one succeeds), Unavailable if it cannot be stored now, and what
        `check_new` does.
        """
        language = self.check_new(name, card.language, owner)
        card = card.model_copy(update={"language": language})
        assert self._store is not None
        try:
            voice = self._store.add(name, owner, card, recording)
            return voice.model_copy(update={"warnings": recording.warnings})
        except NameTaken as error:
            raise VoiceExists(_EXISTS.format(name)) from error
        except StoreFull as error:
            raise VoiceLimit(
                f"you have {self._store.max_voices} voices, and no more are taken; delete one"
            ) from error
        except OSError as error:
            raise Unavailable(_described(error), retry_after_s=_RETRY_AFTER_S) from error

    def remove(self, name: str, owner: str) -> None:
        """Delete an upload and its audio; jobs that use it continue.

        Raises UnknownVoice if it is not the owner's, Unavailable if it cannot be deleted now.
        """
        name = name.lower()
        if not self._has(name, owner):
            self._refuse_to_remove(name, owner)
        assert self._store is not None
        try:
            removed = self._store.remove(name, owner)
        except OSError as error:
            raise Unavailable(_described(error), retry_after_s=_RETRY_AFTER_S) from error
        if not removed:
            raise UnknownVoice(f"the voice {name!r} was deleted already")

    def _refuse_to_remove(self, name: str, owner: str) -> None:
        """Raise the reason why a voice that is not an owner's upload cannot be deleted."""
        try:
            builtin = self.find(name, owner).owner is None
        except VoiceDamaged:
            builtin = False
        if builtin:
            raise VoiceProtected(f"{name} is a built-in voice, which cannot be deleted")
        raise VoiceProtected(f"{name} is everybody's; only the operator can delete it")


def _described(error: OSError) -> str:
    """Log an error of the file system; return its description without the path, for the caller."""
    log.error("a voice cannot be stored, found or deleted: %s", error)
    return f"the folder of voices: {error.strerror or type(error).__name__}"

"""Uploaded voices in a folder or an object store: a JSON and a FLAC file per voice, by owner.

The files are the only state: they survive restarts, and several processes may share them. A voice
exists while its JSON file does, which is written last and deleted first, and only created if there
is none, so that one of several uploads of a name succeeds. Names are validated before they are part
of a path. Nothing is cached but audio of another machine, and which sound was found to be whole.
"""

import hashlib
import logging
import re
from pathlib import Path
from time import time
from typing import TYPE_CHECKING, Final, Literal

from pydantic import ConfigDict, Field, ValidationError

from app.storage.files import FolderFiles, StoreAway
from models.voices.recording import Recording
from models.voices.voice import NAME_PATTERN, Voice, VoiceCard

if TYPE_CHECKING:
    from app.storage.remote_files import RemoteFiles

EVERYBODY = ""
"""Owner of voices that were uploaded without API keys, or added by the operator."""

LOOK_UP_S: Final = 1.0
"""Seconds for what a request waits for before it is known who speaks."""

_MOST_LOOKED_AT = 10_000
_NO_FILE = (FileNotFoundError, IsADirectoryError)
_NAME = re.compile(NAME_PATTERN)
_OWNER = re.compile(r"[A-Za-z0-9_-]{1,64}")

log = logging.getLogger(__name__)


class NameTaken(Exception):
    """The owner has a voice of that name."""


class StoreFull(Exception):
    """The owner has reached the limit of voices."""


class FilesDamaged(Exception):
    """The JSON file of a voice cannot be read, or its sound is missing or not what was stored."""


class StoredCard(VoiceCard):
    """Schema of the JSON file of an uploaded voice."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    consent: Literal[True] = Field(description="The uploader confirmed the speaker's consent.")
    created_at: int = Field(description="Seconds since 1970.")
    audio_s: float = Field(gt=0, description="Length of the audio.")
    sha256: str = Field(pattern="^[0-9a-f]{64}$", description="Of the FLAC file.")

    @classmethod
    def of(cls, card: VoiceCard, recording: Recording, content: bytes) -> "StoredCard":
        """Return the description to store, as of now; ``content`` is the FLAC file."""
        return cls(
            **card.model_dump(),
            consent=True,
            created_at=int(time()),
            audio_s=recording.audio_s,
            sha256=hashlib.sha256(content).hexdigest(),
        )


def open_voice_store(
    where: str, max_voices: int, *, look_up_s: float = LOOK_UP_S, earlier: Path | None = None
) -> "VoiceStore":
    """Return the store of uploaded voices in a folder, or at a URL as ``s3://bucket/voices``.

    Of an ``earlier`` folder the voices are there too.
    """
    if "://" not in where:
        return VoiceStore(FolderFiles(Path(where), earlier), max_voices=max_voices)
    # Takes 0.05 s of processor to import; most services keep voices in a folder.
    from app.storage.remote_files import RemoteFiles

    return VoiceStore(RemoteFiles(where, look_up_s=look_up_s), max_voices=max_voices)


class VoiceStore:
    """The uploaded voices of all owners. Thread-safe; every method reads or writes files."""

    def __init__(self, files: "FolderFiles | RemoteFiles", *, max_voices: int) -> None:
        self._files = files
        self.max_voices = max_voices
        # By path and hash: the state in which it was looked at, and whether it was whole
        self._looked_at: dict[tuple[Path, str], tuple[object, bool]] = {}

    def owners(self) -> list[str]:
        """Return all owners that have a folder."""
        names = sorted(self._files.list(self._files.root)[0])
        owners = [name.removeprefix("owner-") for name in names if name.startswith("owner-")]
        return [EVERYBODY, *owners] if "everybody" in names else owners

    def count(self) -> int:
        """Return the number of voices of all owners; 0 if the store cannot be read."""
        try:
            return sum(len(self.names_of(owner)) for owner in self.owners())
        except OSError as error:
            log.error("cannot list uploaded voices: %s", error)
            return 0

    def of(self, owner: str) -> list[Voice]:
        """Return an owner's voices by name, without damaged ones; none if they cannot be read."""
        return [voice for voice in self._all(owner).values() if voice is not None]

    def damaged(self, owner: str) -> list[str]:
        """Return the names of an owner's damaged voices, which can only be deleted."""
        return [name for name, voice in self._all(owner).items() if voice is None]

    def has(self, name: str, owner: str) -> bool:
        """Return whether a name is in use, by a damaged voice too."""
        return is_name(name) and self._files.exists(self._card(name, owner))

    def find(self, name: str, owner: str) -> Voice | None:
        """Return an owner's voice; None if there is none or the store cannot be read.

        Raises FilesDamaged if they are, as far as that is known without reading anything large
        twice; StoreAway if the store is remote and does not answer.
        """
        if not is_name(name):
            return None
        path = self._card(name, owner)
        try:
            card = StoredCard.model_validate_json(self._files.read(path))
        except (FileNotFoundError, NotADirectoryError):
            return None
        except StoreAway:
            raise
        except OSError as error:  # built-in voices keep working
            log.error("cannot read uploaded voices: %s", error)
            return None
        except ValidationError as error:
            log.warning("%s is not a valid voice file: %s", path, error.errors()[0]["msg"])
            raise FilesDamaged(name) from error
        voice = self._voice(name, owner, card)
        if self._is_whole(voice):
            return voice
        self._check_deleted(voice)
        return None

    def names_of(self, owner: str) -> list[str]:
        """Return the names of an owner's voices, damaged ones too."""
        names = self._files.list(self._folder_of(owner))[1]
        return sorted(Path(name).stem for name in names if name.endswith(".json"))

    def _all(self, owner: str) -> dict[str, Voice | None]:
        """Return an owner's voices by name, None for damaged ones."""
        found: dict[str, Voice | None] = {}
        try:
            for name in self.names_of(owner):
                try:
                    if (voice := self.find(name, owner)) is not None:
                        found[name] = voice
                except FilesDamaged:
                    found[name] = None
        except OSError as error:  # built-in voices keep working
            log.error("cannot list uploaded voices: %s", error)
            return {}
        return found

    def opened(self, voice: Voice) -> Voice | None:
        """Return a voice with its audio in memory; None if it was deleted.

        Raises FilesDamaged if the audio is missing or is not what was stored.
        """
        assert voice.audio is not None
        try:
            state = self._files.state(voice.audio)
            content = self._files.read(voice.audio, large=True)
        except _NO_FILE:
            self._check_deleted(voice)
            return None
        if not self._note(voice, state, content):
            self._check_deleted(voice)
            return None
        return voice.model_copy(update={"recording": content})

    def _is_whole(self, voice: Voice) -> bool:
        """Return whether the audio of a voice is what was stored, as far as that is known."""
        # In a folder it is read once after every change.
        assert voice.audio is not None
        try:
            state = self._files.state(voice.audio)
            before, is_whole = self._looked_at.get((voice.audio, voice.digest), (None, True))
            if state is None or state == before:
                return is_whole
            return self._note(voice, state, self._files.read(voice.audio, large=True))
        except _NO_FILE:
            return False
        except OSError as error:  # told where it is spoken
            log.error("cannot read uploaded voices: %s", error)
            return True

    def _note(self, voice: Voice, state: object, content: bytes) -> bool:
        """Note and return whether content is the audio of a voice."""
        assert voice.audio is not None
        is_whole = hashlib.sha256(content).hexdigest() == voice.digest
        if not is_whole:
            log.error("%s does not have the SHA-256 of its description", voice.audio)
        if len(self._looked_at) >= _MOST_LOOKED_AT:
            self._looked_at.clear()
        self._looked_at[voice.audio, voice.digest] = state, is_whole
        return is_whole

    def _check_deleted(self, voice: Voice) -> None:
        """Raise FilesDamaged unless a voice was deleted meanwhile."""
        if self.has(voice.name, voice.owner or EVERYBODY):
            raise FilesDamaged(voice.name)

    def add(self, name: str, owner: str, card: VoiceCard, recording: Recording) -> Voice:
        """Store a voice; consent must have been given.

        Raises NameTaken if the owner has one of that name, StoreFull if as many as are allowed.
        """
        check_name(name)
        content = recording.flac()
        stored = StoredCard.of(card, recording, content)
        with self._files.locked(self._folder_of(owner)):
            names = self.names_of(owner)
            if name in names:
                raise NameTaken(name)
            if len(names) >= self.max_voices:
                raise StoreFull(owner)
            voice = self._voice(name, owner, stored)
            assert voice.audio is not None
            self._files.write(voice.audio, content)
            described = stored.model_dump_json(indent=1).encode()
            try:
                self._files.create(self._card(name, owner), described)
            except FileExistsError as error:  # another upload of that name was faster
                raise NameTaken(name) from error
        return voice

    def remove(self, name: str, owner: str) -> bool:
        """Delete a voice and its audio; return whether it existed."""
        if not self.has(name, owner):
            return False
        folder = self._folder_of(owner)
        with self._files.locked(folder):
            try:
                self._files.delete(self._card(name, owner))
            except FileNotFoundError:
                return False
            for audio in self._files.list(folder)[1]:
                if audio.startswith(f"{name}.") and audio.endswith(".flac"):
                    self._files.delete(folder / audio)
        return True

    def _voice(self, name: str, owner: str, card: StoredCard) -> Voice:
        return Voice(
            name=name,
            audio=self._folder_of(owner) / f"{name}.{card.sha256[:16]}.flac",
            owner=owner,
            digest=card.sha256,
            created_at=card.created_at,
            audio_s=card.audio_s,
            **card.model_dump(include=set(VoiceCard.model_fields)),
        )

    def _folder_of(self, owner: str) -> Path:
        if owner == EVERYBODY:
            return self._files.root / "everybody"
        if not _OWNER.fullmatch(owner):
            raise ValueError("an owner's name may have letters, digits, _ and - only")
        return self._files.root / f"owner-{owner}"

    def _card(self, name: str, owner: str) -> Path:
        return self._folder_of(owner) / f"{name}.json"


def is_name(name: str) -> bool:
    """Return whether a name is valid."""
    return bool(_NAME.fullmatch(name))


def check_name(name: str) -> None:
    """Raise ValueError if a name is not valid."""
    if not is_name(name):
        raise ValueError("a voice's name may have lower-case letters, digits, _ and - only")

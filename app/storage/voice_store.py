"""Uploaded voices on disk: a folder per owner, a JSON and a FLAC file per voice.

The folder is the only state: it survives restarts, and several processes may share it. A voice
exists while its JSON file does, which is written last and deleted first, atomically; files without
one are removed by the next upload. Names are validated before they reach the file system.
"""

import hashlib
import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import time
from typing import Literal

from pydantic import ConfigDict, Field, ValidationError

from app.storage.files import write_atomically
from models.voices.recording import Recording
from models.voices.voice import NAME_PATTERN, Voice, VoiceCard

EVERYBODY = ""
"""Owner of voices that were uploaded without API keys, or added by the operator."""

_LOCK_TIMEOUT_S = 20.0
_NAME = re.compile(NAME_PATTERN)
_OWNER = re.compile(r"[A-Za-z0-9_-]{1,64}")

log = logging.getLogger(__name__)


class NameTaken(Exception):
    """The owner has a voice of that name."""


class StoreFull(Exception):
    """The owner has reached the limit of voices."""


class StoreAway(OSError):
    """A store on another machine does not answer, or not to these credentials."""


class UnknownStore(ValueError):
    """The URL is of no kind of store that is known."""


class CardDamaged(Exception):
    """The JSON file of a voice cannot be read."""


class StoredCard(VoiceCard):
    """Schema of the JSON file of an uploaded voice."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    consent: Literal[True] = Field(description="The uploader confirmed the speaker's consent.")
    created_at: int = Field(description="Seconds since 1970.")
    audio_s: float = Field(gt=0, description="Length of the audio.")
    sha256: str = Field(pattern="^[0-9a-f]{64}$", description="Of the FLAC file.")

    @classmethod
    def of(cls, card: VoiceCard, recording: Recording, content: bytes) -> "StoredCard":
        """Return the description to store, as of now.

        Args:
            card: Sent by the uploader; consent must have been given.
            recording: The audio.
            content: The FLAC file with it.
        """
        return cls(
            **card.model_dump(),
            consent=True,
            created_at=int(time()),
            audio_s=recording.audio_s,
            sha256=hashlib.sha256(content).hexdigest(),
        )


class VoiceStore:
    """The uploaded voices of all owners. Thread-safe; every method reads or writes files."""

    def __init__(self, folder: Path, *, max_voices: int) -> None:
        self._folder = folder.expanduser()
        self.max_voices = max_voices

    def owners(self) -> list[str]:
        """Return all owners that have a folder."""
        if not self._folder.is_dir():
            return []
        names = sorted(path.name for path in self._folder.iterdir() if path.is_dir())
        owners = [name.removeprefix("owner-") for name in names if name.startswith("owner-")]
        return [EVERYBODY, *owners] if "everybody" in names else owners

    def count(self) -> int:
        """Return the number of voices of all owners."""
        return sum(1 for _ in self._folder.glob("*/*.json"))

    def of(self, owner: str) -> list[Voice]:
        """Return an owner's voices by name, without those whose JSON file is damaged."""
        voices = (self._find_readable(name, owner) for name in self.names_of(owner))
        return [voice for voice in voices if voice is not None]

    def damaged(self, owner: str) -> list[str]:
        """Return the names of an owner's damaged voices, which can only be deleted."""
        return [name for name in self.names_of(owner) if self._is_damaged(name, owner)]

    def has(self, name: str, owner: str) -> bool:
        """Return whether a name is in use, by a damaged voice too."""
        return is_name(name) and (self._folder_of(owner) / f"{name}.json").exists()

    def find(self, name: str, owner: str) -> Voice | None:
        """Return an owner's voice; None if there is none or the store cannot be read.

        Raises:
            CardDamaged: Its JSON file is damaged.
            StoreAway: The store is on another machine and does not answer.
        """
        if not is_name(name):
            return None
        path = self._folder_of(owner) / f"{name}.json"
        try:
            card = StoredCard.model_validate_json(self._read(path))
        except (FileNotFoundError, NotADirectoryError):
            return None
        except StoreAway:
            raise
        except OSError as error:  # built-in voices keep working
            log.error("cannot read uploaded voices: %s", error)
            return None
        except ValidationError as error:
            log.warning("%s is not a valid voice file: %s", path, error.errors()[0]["msg"])
            raise CardDamaged(name) from error
        return self._voice(name, owner, card)

    def _read(self, path: Path) -> bytes:
        """Return the content of a file."""
        return path.read_bytes()

    def names_of(self, owner: str) -> list[str]:
        """Return the names of an owner's voices, damaged ones too."""
        return sorted(path.stem for path in self._folder_of(owner).glob("*.json"))

    def _find_readable(self, name: str, owner: str) -> Voice | None:
        try:
            return self.find(name, owner)
        except CardDamaged:
            return None

    def _is_damaged(self, name: str, owner: str) -> bool:
        try:
            self.find(name, owner)
        except CardDamaged:
            return True
        return False

    def opened(self, voice: Voice) -> Voice | None:
        """Return a voice with its audio in memory; None if it was deleted or is damaged."""
        assert voice.audio is not None
        try:
            content = self._sound(voice.audio)
        except FileNotFoundError:
            return None
        if hashlib.sha256(content).hexdigest() != voice.digest:
            log.error("%s does not have the SHA-256 of its description", voice.audio)
            return None
        return voice.model_copy(update={"recording": content})

    def _sound(self, path: Path) -> bytes:
        """Return the content of a file of audio."""
        return path.read_bytes()

    def add(self, name: str, owner: str, card: VoiceCard, recording: Recording) -> Voice:
        """Store a voice.

        Args:
            name: Must match `NAME_PATTERN`.
            card: Its description; consent must have been given.
            recording: Its audio.

        Raises:
            NameTaken: The owner has a voice of that name.
            StoreFull: The owner has reached the limit.
        """
        check_name(name)
        content = recording.flac()
        stored = StoredCard.of(card, recording, content)
        with self._locked(owner) as folder:
            path = folder / f"{name}.json"
            if path.exists():
                raise NameTaken(name)
            if sum(1 for _ in folder.glob("*.json")) >= self.max_voices:
                raise StoreFull(owner)
            _sweep(folder)
            voice = self._voice(name, owner, stored)
            assert voice.audio is not None
            write_atomically(voice.audio, content)
            write_atomically(path, stored.model_dump_json(indent=1).encode())
        return voice

    def remove(self, name: str, owner: str) -> bool:
        """Delete a voice and its audio; return whether it existed."""
        if not is_name(name) or not self._folder_of(owner).is_dir():
            return False
        with self._locked(owner) as folder:
            try:
                (folder / f"{name}.json").unlink()
            except FileNotFoundError:
                return False
            for audio in folder.glob(f"{name}.*.flac"):
                audio.unlink()
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
        """Return the folder of an owner."""
        if owner == EVERYBODY:
            return self._folder / "everybody"
        if not _OWNER.fullmatch(owner):
            raise ValueError("an owner's name may have letters, digits, _ and - only")
        return self._folder / f"owner-{owner}"

    @contextmanager
    def _locked(self, owner: str) -> Iterator[Path]:
        """Create an owner's folder and lock it against other threads and processes."""
        from filelock import FileLock

        folder = self._folder_of(owner)
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with FileLock(folder / ".lock", timeout=_LOCK_TIMEOUT_S):
            yield folder


def is_name(name: str) -> bool:
    """Return whether a name is valid."""
    return bool(_NAME.fullmatch(name))


def check_name(name: str) -> None:
    """Check a name.

    Raises:
        ValueError: It is not valid.
    """
    if not is_name(name):
        raise ValueError("a voice's name may have lower-case letters, digits, _ and - only")


def _sweep(folder: Path) -> None:
    """Remove files of uploads that were interrupted."""
    for path in [*folder.glob("*.flac"), *folder.glob("*.partial")]:
        if not (folder / f"{path.name.partition('.')[0]}.json").exists():
            path.unlink()

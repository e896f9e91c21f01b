"""Uploaded voices on disk: a folder an owner, a JSON and a FLAC file a voice.

The folder is all the state there is, so that a restart forgets nothing and several processes may
share it. The JSON file makes a voice: it comes last and goes first, each in one step, and whatever
lies there without one is swept away by the next upload. Names come from outside; one that is not
plain never reaches the file system.
"""

import hashlib
import logging
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import time
from typing import Literal

from filelock import FileLock
from pydantic import ConfigDict, Field, ValidationError

from models.voices.recording import Recording
from models.voices.voice import NAME_PATTERN, Voice, VoiceCard

EVERYBODY = ""
"""Owner of what was uploaded where no keys are asked for, and of what the operator adds."""

_LOCK_TIMEOUT_S = 20.0
_NAME = re.compile(NAME_PATTERN)
_OWNER = re.compile(r"[A-Za-z0-9_-]{1,64}")

log = logging.getLogger(__name__)


class NameTaken(Exception):
    """The owner has a voice of that name."""


class StoreFull(Exception):
    """The owner has as many voices as may be."""


class CardDamaged(Exception):
    """There is a voice of that name, but nothing can be read of it."""


class StoredCard(VoiceCard):
    """What the JSON file of an uploaded voice says."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    consent: Literal[True] = Field(description="The speaker agreed, says who uploaded it.")
    created_at: int = Field(description="Seconds since 1970.")
    audio_s: float = Field(gt=0, description="Length of the audio.")
    sha256: str = Field(pattern="^[0-9a-f]{64}$", description="Of the FLAC file.")


class VoiceStore:
    """Voices that belong to somebody. Any thread; every method reads or writes files."""

    def __init__(self, folder: Path, *, max_voices: int) -> None:
        """Touch nothing yet.

        Args:
            folder: Made by the first upload.
            max_voices: Of one owner.
        """
        self._folder = folder.expanduser()
        self.max_voices = max_voices

    def owners(self) -> list[str]:
        """Return all who have a folder."""
        if not self._folder.is_dir():
            return []
        names = sorted(path.name for path in self._folder.iterdir() if path.is_dir())
        owners = [name.removeprefix("owner-") for name in names if name.startswith("owner-")]
        return [EVERYBODY, *owners] if "everybody" in names else owners

    def count(self) -> int:
        """Return how many voices there are, of all owners."""
        return sum(1 for _ in self._folder.glob("*/*.json"))

    def of(self, owner: str) -> list[Voice]:
        """Return an owner's voices, by name; those whose cards are damaged are left out."""
        voices = (self._find_sound(name, owner) for name in self._names_of(owner))
        return [voice for voice in voices if voice is not None]

    def damaged(self, owner: str) -> list[str]:
        """Return the names of an owner's voices whose cards are damaged: they can be deleted."""
        return [name for name in self._names_of(owner) if self._is_damaged(name, owner)]

    def has(self, name: str, owner: str) -> bool:
        """Tell whether a name is taken, be the voice damaged or not."""
        return bool(_NAME.fullmatch(name)) and (self._folder_of(owner) / f"{name}.json").exists()

    def find(self, name: str, owner: str) -> Voice | None:
        """Return an owner's voice, or None if there is none of that name that can be read.

        Raises:
            CardDamaged: Its card says nothing that can be understood.
        """
        if not _NAME.fullmatch(name):
            return None
        path = self._folder_of(owner) / f"{name}.json"
        try:
            card = StoredCard.model_validate_json(path.read_bytes())
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:  # the built-in voices speak on
            log.error("uploaded voices cannot be read: %s", error)
            return None
        except ValidationError as error:
            log.warning("%s is no voice: %s", path, error.errors()[0]["msg"])
            raise CardDamaged(name) from error
        return self._voice(name, owner, card)

    def _names_of(self, owner: str) -> list[str]:
        return sorted(path.stem for path in self._folder_of(owner).glob("*.json"))

    def _find_sound(self, name: str, owner: str) -> Voice | None:
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
        """Return a voice that stays usable when it is deleted; None if it has been."""
        assert voice.audio is not None
        try:
            return voice.model_copy(update={"recording": voice.audio.read_bytes()})
        except FileNotFoundError:
            return None

    def add(self, name: str, owner: str, card: VoiceCard, recording: Recording) -> Voice:
        """Keep a voice.

        Args:
            name: Plain, as `NAME_PATTERN` says.
            owner: Whose it will be.
            card: What is said of it; consent must have been given.
            recording: How it sounds.

        Raises:
            ValueError: The name is not plain.
            NameTaken: The owner has one of that name; whoever comes first keeps it.
            StoreFull: The owner has as many as may be.
            OSError: It cannot be written; then nothing is kept.
        """
        if not _NAME.fullmatch(name):
            raise ValueError("a voice's name has lower-case letters, digits, _ and - only")
        content = recording.flac()
        stored = StoredCard(
            **card.model_dump(),
            consent=True,
            created_at=int(time()),
            audio_s=recording.audio_s,
            sha256=hashlib.sha256(content).hexdigest(),
        )
        with self._locked(owner) as folder:
            path = folder / f"{name}.json"
            if path.exists():
                raise NameTaken(name)
            if sum(1 for _ in folder.glob("*.json")) >= self.max_voices:
                raise StoreFull(owner)
            _sweep(folder)
            voice = self._voice(name, owner, stored)
            assert voice.audio is not None
            _write(voice.audio, content)
            _write(path, stored.model_dump_json(indent=1).encode())
        return voice

    def remove(self, name: str, owner: str) -> bool:
        """Delete a voice and its audio; return whether there was one.

        Raises:
            OSError: It cannot be deleted.
        """
        if not _NAME.fullmatch(name) or not self._folder_of(owner).is_dir():
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
        """Return where an owner's voices lie.

        Raises:
            ValueError: It is no name of an owner.
        """
        if owner == EVERYBODY:
            return self._folder / "everybody"
        if not _OWNER.fullmatch(owner):
            raise ValueError("an owner has letters, digits, _ and - only")
        return self._folder / f"owner-{owner}"

    @contextmanager
    def _locked(self, owner: str) -> Iterator[Path]:
        """Let one thread of one process change an owner's folder at a time; make the folder."""
        folder = self._folder_of(owner)
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with FileLock(folder / ".lock", timeout=_LOCK_TIMEOUT_S):
            yield folder


def _sweep(folder: Path) -> None:
    """Remove what an upload left that was cut off."""
    for path in [*folder.glob("*.flac"), *folder.glob("*.partial")]:
        if not (folder / f"{path.name.partition('.')[0]}.json").exists():
            path.unlink()


def _write(path: Path, content: bytes) -> None:
    """Write a file, whole or not at all."""
    partial = path.with_name(path.name + ".partial")
    with partial.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    partial.replace(path)

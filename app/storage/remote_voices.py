"""Uploaded voices in an object store.

As in a folder (`app.storage.voice_store`), a voice exists while its JSON object does, which is
written last and deleted first. An object store has neither locks nor renames: each object is whole
or not there, and the JSON is only created if there is none, which makes one of several uploads of a
name succeed. Nothing is cached but audio, by its hash, so that every process sees an upload at
once.
"""

import logging
from collections import OrderedDict
from pathlib import Path
from typing import Final

from app.storage.voice_store import (
    EVERYBODY,
    NameTaken,
    StoredCard,
    StoreFull,
    VoiceStore,
    check_name,
    is_name,
)
from models.voices.recording import Recording
from models.voices.voice import Voice, VoiceCard

log = logging.getLogger(__name__)

LOOK_UP_S: Final = 1.0
"""Seconds for what a request waits for before it is known who speaks."""
_CACHED: Final = 32


def open_voice_store(where: str, max_voices: int, *, look_up_s: float = LOOK_UP_S) -> VoiceStore:
    """Return the store of uploaded voices.

    Args:
        where: A folder, or a URL as in ``s3://bucket/voices``.
        max_voices: Limit per owner.
        look_up_s: Seconds that a store on another machine has to tell whether there is a voice.
    """
    if "://" not in where:
        return VoiceStore(Path(where), max_voices=max_voices)
    return RemoteVoiceStore(where, max_voices=max_voices, look_up_s=look_up_s)


class RemoteVoiceStore(VoiceStore):
    """The uploaded voices of all owners. Thread-safe; every method talks to the store."""

    def __init__(self, url: str, *, max_voices: int, look_up_s: float = LOOK_UP_S) -> None:
        # Takes 0.05 s of processor to import; most services keep voices in a folder.
        from app.storage.remote_files import RemoteFiles

        self._files = RemoteFiles(url, look_up_s=look_up_s)
        super().__init__(Path(), max_voices=max_voices)
        self._audio: OrderedDict[str, bytes] = OrderedDict()  # digest -> content

    def owners(self) -> list[str]:
        """Return all owners that have a voice."""
        names = sorted(self._files.list()[0])
        owners = [name.removeprefix("owner-") for name in names if name.startswith("owner-")]
        return [EVERYBODY, *owners] if "everybody" in names else owners

    def count(self) -> int:
        """Return the number of voices of all owners; 0 if the store does not answer."""
        try:
            return sum(len(self.names_of(owner)) for owner in self.owners())
        except OSError as error:
            log.error("cannot list uploaded voices: %s", error)
            return 0

    def of(self, owner: str) -> list[Voice]:
        """Return an owner's voices by name; none if the store does not answer."""
        try:
            return super().of(owner)
        except OSError as error:  # built-in voices keep working
            log.error("cannot list uploaded voices: %s", error)
            return []

    def damaged(self, owner: str) -> list[str]:
        """Return the names of an owner's damaged voices; none if the store does not answer."""
        try:
            return super().damaged(owner)
        except OSError as error:
            log.error("cannot list uploaded voices: %s", error)
            return []

    def has(self, name: str, owner: str) -> bool:
        """Return whether a name is in use, by a damaged voice too."""
        return is_name(name) and self._files.exists(self._card(name, owner))

    def opened(self, voice: Voice) -> Voice | None:
        """Return a voice with its audio in memory; None if it was deleted or is damaged."""
        if (content := self._audio.get(voice.digest)) is not None:
            return voice.model_copy(update={"recording": content})
        opened = super().opened(voice)
        if opened is not None and opened.recording is not None:
            self._audio[voice.digest] = opened.recording
            while len(self._audio) > _CACHED:
                self._audio.popitem(last=False)
        return opened

    def add(self, name: str, owner: str, card: VoiceCard, recording: Recording) -> Voice:
        """Store a voice; as `VoiceStore.add`.

        Raises:
            NameTaken: The owner has a voice of that name.
            StoreFull: The owner has reached the limit.
        """
        check_name(name)
        content = recording.flac()
        stored = StoredCard.of(card, recording, content)
        names = self.names_of(owner)
        if name in names:
            raise NameTaken(name)
        if len(names) >= self.max_voices:
            raise StoreFull(owner)
        voice = self._voice(name, owner, stored)
        self._files.write(str(voice.audio), content)
        described = stored.model_dump_json(indent=1).encode()
        try:
            self._files.create(self._card(name, owner), described)
        except FileExistsError as error:  # another upload of that name was faster
            raise NameTaken(name) from error
        return voice

    def remove(self, name: str, owner: str) -> bool:
        """Delete a voice and its audio; return whether it existed."""
        if not is_name(name):
            return False
        path = self._card(name, owner)
        if not self._files.exists(path):
            return False
        try:
            self._files.delete(path)
        except FileNotFoundError:
            return False
        folder = self._folder_of(owner)
        for audio in self._files.list(str(folder))[1]:
            if audio.startswith(f"{name}.") and audio.endswith(".flac"):
                self._files.delete(str(folder / audio))
        return True

    def _read(self, path: Path) -> bytes:
        """Return the content of an object; as `VoiceStore._read`."""
        return self._files.read(str(path))

    def _sound(self, path: Path) -> bytes:
        return self._files.read(str(path), large=True)

    def names_of(self, owner: str) -> list[str]:
        """Return the names of an owner's voices, damaged ones too."""
        names = self._files.list(str(self._folder_of(owner)))[1]
        return sorted(Path(name).stem for name in names if name.endswith(".json"))

    def _card(self, name: str, owner: str) -> str:
        return str(self._folder_of(owner) / f"{name}.json")

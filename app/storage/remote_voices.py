"""Uploaded voices in an object store, or any other file system that `fsspec` knows.

As in a folder (`app.storage.voice_store`), a voice exists while its JSON object does, which is
written last and deleted first. An object store has neither locks nor renames: each object is whole
or not there, and the JSON is only created if there is none, which makes one of several uploads of a
name succeed. Nothing is cached but audio, by its hash, so that every process sees an upload at
once.
"""

import hashlib
import logging
import os
from collections import OrderedDict
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

from app.storage.remote_files import LOOK_UP_S, RemoteFiles
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

_CACHED: Final = 32
_OPTIONS: Final = {
    "s3": {
        "use_listings_cache": False,
        # What is tried again is tried by s3fs, or both would: fifteen times in all.
        "config_kwargs": {
            "connect_timeout": 1,
            "read_timeout": 3,
            "retries": {"total_max_attempts": 1},
        },
    }
}
"""By protocol: no listing is cached, and a request that nobody answers is soon given up.

`RemoteFiles` bounds what a caller waits; these bound the threads and connections that are left.
"""
_ATTEMPTS: Final = 2
"""Of s3fs, so that a kept connection that the server closed meanwhile is no failure."""


def open_voice_store(where: str, max_voices: int, *, look_up_s: float = LOOK_UP_S) -> VoiceStore:
    """Return the store of uploaded voices.

    Args:
        where: A folder, or a URL as in ``s3://bucket/voices``.
        max_voices: Limit per owner.
        look_up_s: Seconds that a store on another machine has to tell whether there is a voice.

    Raises:
        ValueError: Nothing is known of the URL's protocol.
        ImportError: The package for the URL's protocol is not installed.
    """
    if "://" not in where:
        return VoiceStore(Path(where), max_voices=max_voices)
    return RemoteVoiceStore(where, max_voices=max_voices, look_up_s=look_up_s)


class RemoteVoiceStore(VoiceStore):
    """The uploaded voices of all owners. Thread-safe; every method talks to the store."""

    def __init__(self, url: str, *, max_voices: int, look_up_s: float = LOOK_UP_S) -> None:
        """Initialise; the store is first asked in the background.

        Args:
            url: As in ``s3://bucket/voices``.
            max_voices: Limit per owner; several uploads at once may pass it by a few.
            look_up_s: Seconds that the store has to tell whether there is a voice.

        Raises:
            ValueError: Nothing is known of the URL's protocol.
            ImportError: The package for the URL's protocol is not installed.
        """
        # Takes 0.07 s of processor to import; most services keep voices in a folder.
        from fsspec.core import url_to_fs
        from fsspec.implementations.local import LocalFileSystem

        protocol = url.partition("://")[0]
        options: dict[str, Any] = _OPTIONS.get(protocol, {})
        files, root = url_to_fs(url, **options)
        connect = None
        if protocol == "s3":
            files.retries, connect = _ATTEMPTS, files.connect  # its client takes a second to make
        self._files = RemoteFiles(files, root, connect=connect, look_up_s=look_up_s)
        self._is_local = isinstance(files, LocalFileSystem)
        super().__init__(Path(root), max_voices=max_voices)
        self._audio: OrderedDict[str, bytes] = OrderedDict()  # digest -> content

    def owners(self) -> list[str]:
        """Return all owners that have a voice."""
        found = self._ls(self._folder)
        names = sorted(Path(one).name for one in found if self._files.look_up("isdir", one))
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
        """Return whether a name is in use, by a damaged voice too.

        Raises:
            StoreAway: The store does not answer.
        """
        return is_name(name) and bool(self._files.look_up("exists", self._card(name, owner)))

    def opened(self, voice: Voice) -> Voice | None:
        """Return a voice with its audio in memory; None if it was deleted or is damaged.

        Raises:
            StoreAway: The store does not answer.
        """
        assert voice.audio is not None
        content = self._audio.get(voice.digest)
        if content is None:
            try:
                content = self._files.transfer("cat_file", str(voice.audio))
            except FileNotFoundError:
                return None
            if hashlib.sha256(content).hexdigest() != voice.digest:
                log.error("%s does not have the SHA-256 of its description", voice.audio)
                return None
            self._audio[voice.digest] = content
            while len(self._audio) > _CACHED:
                self._audio.popitem(last=False)
        return voice.model_copy(update={"recording": content})

    def add(self, name: str, owner: str, card: VoiceCard, recording: Recording) -> Voice:
        """Store a voice; as `VoiceStore.add`.

        Raises:
            ValueError: The name is not valid.
            NameTaken: The owner has a voice of that name.
            StoreFull: The owner has reached the limit.
            OSError: It cannot be written.
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
        self._files.transfer("makedirs", str(self._folder_of(owner)), exist_ok=True)
        self._files.transfer("pipe_file", str(voice.audio), content)
        described = stored.model_dump_json(indent=1).encode()
        try:
            self._create(self._card(name, owner), described)
        except FileExistsError as error:  # another upload of that name was faster
            raise NameTaken(name) from error
        return voice

    def remove(self, name: str, owner: str) -> bool:
        """Delete a voice and its audio; return whether it existed."""
        if not is_name(name):
            return False
        path = self._card(name, owner)
        if not self._files.look_up("exists", path):
            return False
        try:
            self._files.transfer("rm_file", path)
        except FileNotFoundError:
            return False
        for audio in self._ls(self._folder_of(owner)):
            if Path(audio).name.startswith(f"{name}.") and audio.endswith(".flac"):
                self._files.transfer("rm_file", audio)
        return True

    def _create(self, path: str, content: bytes) -> None:
        """Write an object, whole at once.

        Raises:
            FileExistsError: There is one.
        """
        if not self._is_local:
            self._files.transfer("pipe_file", path, content, mode="create")
            return
        # `pipe_file` looks first and then writes; a link is made or not.
        partial = f"{path}.{uuid4().hex}"
        self._files.transfer("pipe_file", partial, content)
        try:
            os.link(partial, path)
        finally:
            self._files.transfer("rm_file", partial)

    def _read(self, path: Path) -> bytes:
        """Return the content of an object; as `VoiceStore._read`."""
        content: bytes = self._files.look_up("cat_file", str(path))
        return content

    def names_of(self, owner: str) -> list[str]:
        """Return the names of an owner's voices, damaged ones too.

        Raises:
            StoreAway: The store does not answer.
        """
        paths = self._ls(self._folder_of(owner))
        return sorted(Path(path).stem for path in paths if path.endswith(".json"))

    def _card(self, name: str, owner: str) -> str:
        return str(self._folder_of(owner) / f"{name}.json")

    def _ls(self, folder: Path) -> Iterator[str]:
        try:
            yield from map(str, self._files.look_up("ls", str(folder), detail=False))
        except FileNotFoundError:
            return

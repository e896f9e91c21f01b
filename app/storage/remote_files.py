"""Objects in a store on another machine; one that hangs keeps one caller waiting, once."""

import errno
import logging
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from datetime import timedelta
from functools import lru_cache, partial
from pathlib import Path
from typing import Final, TypeVar

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError
from obstore.store import LocalStore, ObjectStore, from_url

from app.storage.files import StoreAway, UnknownStore

_T = TypeVar("_T")

TRANSFER_S: Final = 5.0
"""Seconds for audio, and for whatever writes."""

_MOST_CACHED: Final = 32
_AWAY: Final = "does not answer"
_GONE: Final = "the store of voices does not answer (%s): until it does, built-in voices only"

log = logging.getLogger(__name__)


class RemoteFiles:
    """The objects under a URL; calls end within a deadline, and every failure is an `OSError`.

    Once a call has missed its deadline all further ones fail at once, until the store has answered
    a request in the background. Quick errors, as of a refused connection, change nothing for later
    calls. The first calls wait for a first answer. Thread-safe.

    Paths are relative to the URL, as in ``s3://bucket/voices``; UnknownStore is raised if it is of
    no known kind. ``look_up_s`` holds for small objects too, ``transfer_s`` for audio and writes.
    """

    def __init__(self, url: str, *, look_up_s: float, transfer_s: float = TRANSFER_S) -> None:
        self.root = Path()
        self._quick = _store(url, look_up_s), look_up_s
        self._slow = _store(url, transfer_s), transfer_s
        self._read_large = lru_cache(_MOST_CACHED)(partial(self._read, self._slow))
        self._asked = threading.Event()
        self._answers = threading.Event()
        self._leaving = threading.Lock()
        threading.Thread(target=self._start, name="voices", daemon=True).start()

    def read(self, path: Path, *, large: bool = False) -> bytes:
        """Return the content of an object; large ones, whose names have its hash, are cached."""
        return self._read_large(path) if large else self._read(self._quick, path)

    def _read(self, place: tuple[ObjectStore, float], path: Path) -> bytes:
        return self._call(place, lambda store: bytes(obstore.get(store, str(path)).bytes()))

    def state(self, path: Path) -> tuple[int, int] | None:  # noqa: ARG002
        """Return None: to ask for it takes as long as to read a card."""
        return None

    def exists(self, path: Path) -> bool:
        """Return whether there is an object."""
        try:
            self._call(self._quick, lambda store: obstore.head(store, str(path)))
        except FileNotFoundError:
            return False
        return True

    def list(self, folder: Path) -> tuple[list[str], list[str]]:
        """Return the names of the folders and of the objects in a folder."""
        prefix = None if folder == self.root else str(folder)
        found = self._call(self._quick, lambda store: obstore.list_with_delimiter(store, prefix))
        paths = found["common_prefixes"], [one["path"] for one in found["objects"]]
        folders, objects = ([path.rpartition("/")[2] for path in one] for one in paths)
        return folders, objects

    def write(self, path: Path, content: bytes) -> None:
        """Write an object, whole at once."""
        self._call(self._slow, lambda store: obstore.put(store, str(path), content))

    def create(self, path: Path, content: bytes) -> None:
        """Write an object, whole at once; `FileExistsError` says that there is one."""
        self._call(self._slow, lambda store: obstore.put(store, str(path), content, mode="create"))

    def delete(self, path: Path) -> None:
        """Delete an object; of a missing one S3 says nothing, others `FileNotFoundError`."""
        self._call(self._slow, lambda store: obstore.delete(store, str(path)))

    def locked(self, folder: Path) -> AbstractContextManager[None]:
        """Do nothing: an object store has no locks."""
        del folder
        return nullcontext()

    def _call(self, place: tuple[ObjectStore, float], work: Callable[[ObjectStore], _T]) -> _T:
        self._asked.wait()
        if not self._answers.is_set():
            raise StoreAway(errno.ETIMEDOUT, _AWAY)
        store, within_s = place
        began_s = time.monotonic()
        try:
            return work(store)
        except FileNotFoundError:
            raise
        except AlreadyExistsError as error:
            raise FileExistsError(str(error)) from error
        except (BaseError, OSError) as error:
            said = str(error).partition("\n")[0]
            if time.monotonic() - began_s >= within_s:
                self._leave(said)
                raise StoreAway(errno.ETIMEDOUT, _AWAY) from error
            raise StoreAway(errno.EIO, said) from error

    def _start(self) -> None:
        if self._asks():
            self._answers.set()
            self._asked.set()
        else:
            log.error(_GONE, "from the start")
            self._asked.set()
            self._return()

    def _leave(self, why: str) -> None:
        """Let calls fail at once from now on, until the store answers."""
        with self._leaving:
            if self._answers.is_set():
                self._answers.clear()
                log.error(_GONE, why)
                threading.Thread(target=self._return, name="voices", daemon=True).start()

    def _return(self) -> None:
        while not self._asks():
            pass  # a question takes its deadline
        log.warning("the store of voices answers again")
        self._answers.set()

    def _asks(self) -> bool:
        """Return whether the store answers a question in time, whatever it says."""
        store, within_s = self._slow
        began_s = time.monotonic()
        try:
            obstore.head(store, "voices")
        except (BaseError, OSError):
            return time.monotonic() - began_s < within_s
        return True


def _store(url: str, within_s: float) -> ObjectStore:
    if url.startswith("file://"):
        return LocalStore.from_url(url, mkdir=True)
    deadline = timedelta(seconds=within_s)
    try:
        return from_url(
            url,
            client_options={"timeout": deadline, "allow_http": True},
            # The server may have closed a kept connection; nothing is tried after the deadline.
            retry_config={"max_retries": 1, "retry_timeout": deadline},
        )
    except BaseError as error:
        raise UnknownStore(
            f"{url}: no kind of store that is known; s3://bucket/folder is one, and so are gs://,"
            " az:// and file://"
        ) from error

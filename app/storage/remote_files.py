"""Files of another machine, by `fsspec`, that never keep a caller waiting."""

import errno
import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future, wait
from typing import Any, Final

from app.storage.voice_store import StoreAway

LOOK_UP_S: Final = 1.0
"""Seconds for what a request waits for before it is known who speaks."""
TRANSFER_S: Final = 5.0
"""Seconds for audio, and for whatever writes."""

_CONNECT_S: Final = 10.0
_FIRST_S: Final = 3.0
_GIVEN_UP_S: Final = 30.0
_AWAY: Final = "does not answer"
_GONE: Final = "the store of voices does not answer (%s): until it does, built-in voices only"

log = logging.getLogger(__name__)


class RemoteFiles:
    """A file system whose calls end within a deadline, and whose every failure is an `OSError`.

    A call runs in a thread of its own, which is left alone once its deadline has passed: the
    clients that `fsspec` uses bound single reads, try again, and so take minutes of a server that
    accepts connections and never answers. From then on all calls fail at once, until such a server
    has answered a question that is asked in the background: one caller waits for it, once. Errors
    that come soon, as of a connection that is refused, change nothing for later calls.

    Thread-safe.
    """

    def __init__(
        self,
        files: Any,
        root: str,
        *,
        connect: Callable[[], object] | None = None,
        look_up_s: float = LOOK_UP_S,
        transfer_s: float = TRANSFER_S,
    ) -> None:
        """Ask for the root in the background; the first calls wait for the answer, some seconds.

        Args:
            files: A file system of `fsspec`.
            root: A path whose existence is asked for to see whether the server answers.
            connect: Called in the background before anything else: what takes time once.
            look_up_s: Deadline of `look_up`, in seconds.
            transfer_s: Deadline of `transfer`, in seconds.
        """
        self._files, self._root = files, root
        self._look_up_s, self._transfer_s = look_up_s, transfer_s
        self._asked, self._answers = threading.Event(), threading.Event()
        self._leaving = threading.Lock()
        _in_thread(self._start, connect)

    def look_up(self, method: str, *args: Any, **options: Any) -> Any:
        """Return what a method of the file system returns, which takes little time; or raise.

        Args:
            method: Its name.
            args: Its arguments.
            options: Its further arguments.

        Raises:
            FileNotFoundError: There is no such file.
            FileExistsError: There is one already.
            StoreAway: It failed in any other way, or did not end in time.
        """
        return self._call(self._look_up_s, method, args, options)

    def transfer(self, method: str, *args: Any, **options: Any) -> Any:
        """Return what a method that moves audio, or writes, returns; or raise, as `look_up`."""
        return self._call(self._transfer_s, method, args, options)

    def _call(self, within_s: float, method: str, args: Any, options: Any) -> Any:
        self._asked.wait(_CONNECT_S)
        if not self._answers.is_set():
            raise StoreAway(errno.ETIMEDOUT, _AWAY)
        work = _in_thread(getattr(self._files, method), *args, **options)
        if not _ends(work, within_s):
            self._leave(f"{method} took more than {within_s:g} s")
            raise StoreAway(errno.ETIMEDOUT, _AWAY)
        try:
            return work.result()
        except (FileNotFoundError, FileExistsError):
            raise
        except Exception as error:  # botocore's errors of connections are no OSError
            raise StoreAway(errno.EIO, f"{type(error).__name__}: {error}") from error

    def _start(self, connect: Callable[[], object] | None) -> None:
        if connect is not None:
            try:
                connect()
            except Exception as error:  # each call will raise it
                log.debug("%s: %s", type(error).__name__, error)
        question = self._question()
        answers = _ends(question, max(_FIRST_S, self._look_up_s))
        if answers:
            self._answers.set()
        self._asked.set()
        if not answers:
            log.error(_GONE, "from the start")
            self._return(question)

    def _leave(self, why: str) -> None:
        """Let calls fail at once from now on, until the server answers."""
        with self._leaving:
            if self._answers.is_set():
                self._answers.clear()
                log.error(_GONE, why)
                _in_thread(self._return)

    def _return(self, late: Future[Any] | None = None) -> None:
        """Ask until the server answers in time, whatever it says.

        Args:
            late: A question that is still open; one is asked at a time.
        """
        while True:
            if late is not None:
                _ends(late, _GIVEN_UP_S)
            late = self._question()
            if _ends(late, self._look_up_s):
                break
        log.warning("the store of voices answers again")
        self._answers.set()

    def _question(self) -> Future[Any]:
        return _in_thread(self._files.exists, self._root)


def _ends(work: Future[Any], within_s: float) -> bool:
    """Wait for work; return whether it has ended, by an exception or not."""
    return bool(wait([work], within_s).done)


def _in_thread(function: Callable[..., Any], *args: Any, **options: Any) -> Future[Any]:
    """Call a function in a thread that no exit of the process waits for."""
    work: Future[Any] = Future()

    def run() -> None:
        try:
            work.set_result(function(*args, **options))
        except BaseException as error:
            work.set_exception(error)

    threading.Thread(target=run, name="voices", daemon=True).start()
    return work

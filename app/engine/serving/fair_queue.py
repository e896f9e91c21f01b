"""A thread in which clients take turns."""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from heapq import heappop, heappush
from itertools import count
from threading import Lock
from time import monotonic
from typing import Any, TypeVar

from app.engine.errors import broken

OnPiece = Callable[[], None]
FairTask = Callable[[OnPiece], object]
"""What is done when its turn has come; it calls its argument between two pieces."""

_T = TypeVar("_T")


class FairQueue:
    """What waits to be done, as texts to be read. Not thread-safe.

    Clients take turns, and each has its shortest text read first. That is start-time fair queueing
    (Goyal, Vin and Cheng 1996): every client has a tag, the characters that were read for it. Of
    the waiting clients the one with the lowest tag comes next; a new one begins no lower than the
    one that is read now, so that nobody saves up turns.
    """

    def __init__(self) -> None:
        self._waiting: dict[str, list[tuple[int, int, FairTask]]] = {}
        self._tags: dict[str, int] = {}
        self._now = 0  # the tag at which the text that is read now began
        self._added = count()
        self._reading: list[tuple[str, int]] = []  # clients and lengths, the innermost last

    def add(self, client: str, length: int, turn: FairTask) -> None:
        """Let a text wait for its turn, or what is as long as so many characters."""
        if client not in self._waiting:
            self._waiting[client] = []
            self._tags[client] = max(self._now, self._tags.get(client, 0))
        heappush(self._waiting[client], (length, next(self._added), turn))

    def begin(self) -> FairTask | None:
        """Return whose turn is next, to be followed by `end`; None if there is none.

        While one is read only one that goes before its rest is next: a shorter one of the same
        client, or one of a client for whom less was read.
        """
        client = self._first()
        if client is None:
            return None
        if not self._reading and len(self._waiting) == 1:
            # Nobody else waits and nothing is read: whatever was before delays nobody.
            self._now = max(self._tags.values())
            self._tags = {client: self._now}
        waiting = self._waiting[client]
        length, _, turn = heappop(waiting)
        self._now = max(self._now, self._tags[client])
        self._tags[client] += length
        if not waiting:
            del self._waiting[client]
            # Of who does not wait, a tag that has been passed says no more than none.
            tags = self._tags.items()
            self._tags = {one: n for one, n in tags if n > self._now or one in self._waiting}
        self._reading.append((client, length))
        return turn

    def end(self) -> None:
        """Note that what was begun last is done."""
        self._reading.pop()

    def clear(self) -> None:
        """Remove all that wait."""
        self._waiting.clear()

    def _first(self) -> str | None:
        """Return whose turn it is."""
        if not self._waiting:
            return None
        # Of two with the same tag, whoever has the shorter text.
        client = min(self._waiting, key=lambda one: (self._tags[one], self._waiting[one][0]))
        if not self._reading:
            return client
        reader, length = self._reading[-1]
        own = self._waiting.get(reader)
        tag = self._tags.get(reader, self._now)
        if client != reader and self._tags[client] < tag:
            return client
        return reader if own and own[0][0] < length else None


class TurnThread:
    """A thread that does what is submitted by `FairQueue`.

    Between two pieces of what it does, whatever comes before the rest is done.
    """

    def __init__(self, name: str) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=name)
        self._turns = FairQueue()
        self._lock = Lock()
        self._results: set[Future[Any]] = set()  # that are waited for
        self._piece_since_s: float | None = None  # by `time.monotonic`; None: there is none

    @property
    def silent_s(self) -> float:
        """Seconds for which the present piece has been worked on; 0 if there is none."""
        since_s = self._piece_since_s
        return 0.0 if since_s is None else monotonic() - since_s

    def submit(self, client: str, length: int, turn: FairTask) -> None:
        """Have a turn taken, of a client, that is as long as so many characters."""
        with self._lock:
            self._turns.add(client, length, turn)
        self._thread.submit(self._do_next)

    def result(
        self, job_id: str, client: str, length: int, run: Callable[[OnPiece], _T]
    ) -> "Future[_T]":
        """Have something done as by `submit`; return what it will give."""
        result: Future[_T] = Future()

        def turn(on_piece: OnPiece) -> None:
            if not result.set_running_or_notify_cancel():
                return
            try:
                result.set_result(run(on_piece))
            except BaseException as error:
                result.set_exception(broken(job_id, error))

        self._results.add(result)
        result.add_done_callback(self._results.discard)
        self.submit(client, length, turn)
        return result

    def close(self) -> None:
        """Do no more; who waits for a result is told."""
        with self._lock:
            self._turns.clear()
        for waiting in tuple(self._results):
            waiting.cancel()
        self._thread.shutdown(wait=False, cancel_futures=True)

    def _do_next(self) -> bool:
        """Do what comes next; False if there is nothing."""
        with self._lock:
            turn = self._turns.begin()
        if turn is None:
            return False
        around_s = self._piece_since_s
        self._piece_since_s = monotonic()
        try:
            turn(self._do_all)
        finally:
            # What this was done within goes on with a piece of its own.
            self._piece_since_s = None if around_s is None else monotonic()
            with self._lock:
                self._turns.end()
        return True

    def _do_all(self) -> None:
        """Do all that comes before the rest of what is being done."""
        while self._do_next():
            pass
        self._piece_since_s = monotonic()

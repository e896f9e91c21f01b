"""Fairness between clients: how much of a pool one may have, and in which order texts are read.

A client is an owner of keys, or an address where no keys are required. One rule for every pool: a
fifth of its places is reserved for other clients, so that nobody can exclude them.

Texts are read by turns, of each client the shortest first. That is start-time fair queueing (Goyal,
Vin and Cheng 1996): every client has a tag, the characters that were read for it. Of the waiting
clients the one with the lowest tag comes next; a new one begins no lower than the one that is read
now, so that nobody saves up turns.
"""

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import count
from typing import Generic, TypeVar

from app.engine.admission import reserved, share
from app.engine.serving.running import RunningJob

T = TypeVar("T")


class Places:
    """A pool of places, of which each client has at most its share. One thread only."""

    def __init__(self, limit: int) -> None:
        self.limit, self.taken = limit, 0
        self._of: Counter[str] = Counter()

    def free(self, client: str, places: int = 1) -> bool:
        """Return whether a client can take more places."""
        own = self._of[client] + places
        return self.taken + places <= self.limit and own <= share(self.limit)

    def take(self, client: str, places: int = 1) -> None:
        """Take places until `give_back`; the caller checks `free` before."""
        self.taken += places
        self._of[client] += places

    def give_back(self, client: str, places: int = 1) -> None:
        """Free places that were taken."""
        self.taken -= places
        self._of[client] -= places
        if not self._of[client]:
            del self._of[client]

    @contextmanager
    def held(self, client: str) -> Iterator[None]:
        """Take a place for the duration of a context; the caller checks `free` before."""
        self.take(client)
        try:
            yield
        finally:
            self.give_back(client)


class RowShares:
    """Chooses which of the waiting jobs gets rows of the batch next.

    Within a priority, the job comes first whose client has the fewest rows, and of those the
    oldest. No job overtakes one that does not fit yet, or a large job would never begin. With two
    exceptions: a job whose client has its full share waits without blocking others; and the
    reserved rows are for jobs that need no more, which therefore never delay a larger one.
    """

    def __init__(self, slots: int) -> None:
        self._slots, self._reserved, self._share = slots, reserved(slots), share(slots)

    def next(
        self, waiting: Sequence[RunningJob], running: Collection[RunningJob]
    ) -> RunningJob | None:
        """Return the job that can begin now, or None.

        Args:
            waiting: Oldest first.
        """
        rows_by_client, small = Counter[str](), 0
        for job in running:
            rows_by_client[job.client] += job.rows
            small += job.rows if self._is_small(job) else 0
        used, blocked, full = rows_by_client.total(), False, set[str]()
        for job in sorted(waiting, key=lambda one: (one.priority, rows_by_client[one.client])):
            rows = job.rows
            if job.client in full or rows_by_client[job.client] + rows > self._share:
                full.add(job.client)
                continue
            if self._is_small(job):
                fits = used + rows <= self._slots
                if fits and (not blocked or small + rows <= self._reserved):
                    return job
            elif not blocked and used - small + rows <= self._share and used + rows <= self._slots:
                return job
            blocked = True
        return None

    def _is_small(self, job: RunningJob) -> bool:
        """Return whether a job may have the reserved rows; without any, every job is small."""
        return not self._reserved or job.rows <= self._reserved


@dataclass(frozen=True, slots=True)
class Turn(Generic[T]):
    """A text whose turn has come."""

    client: str
    length: int  # its characters
    item: T


class Turns(Generic[T]):
    """Texts that wait to be read. Not thread-safe."""

    def __init__(self) -> None:
        self._waiting: dict[str, list[tuple[int, int, T]]] = {}
        self._tags: dict[str, int] = {}
        self._now = 0  # the tag at which the text that is read now began
        self._added = count()

    def add(self, client: str, length: int, item: T) -> None:
        """Let a text wait.

        Args:
            length: Its characters, or what else of work is as long as so many.
        """
        if client not in self._waiting:
            self._waiting[client] = []
            self._tags[client] = max(self._now, self._tags.get(client, 0))
        heappush(self._waiting[client], (length, next(self._added), item))

    def next(self, during: Turn[T] | None = None) -> Turn[T] | None:
        """Return the text to read next; None if there is none.

        Args:
            during: The text that is being read: only one that goes before its rest is returned.
                That is a shorter one of the same client, or one of a client for whom less was
                read.
        """
        client = self._first(during)
        if client is None:
            return None
        if during is None and len(self._waiting) == 1:
            # Nobody else waits and nothing is read: whatever was before delays nobody.
            self._now = max(self._tags.values())
            self._tags = {client: self._now}
        waiting = self._waiting[client]
        length, _, item = heappop(waiting)
        self._now = max(self._now, self._tags[client])
        self._tags[client] += length
        if not waiting:
            del self._waiting[client]
            # Of who does not wait, a tag that has been passed says no more than none.
            tags = self._tags.items()
            self._tags = {one: n for one, n in tags if n > self._now or one in self._waiting}
        return Turn(client, length, item)

    def clear(self) -> list[T]:
        """Remove all and return them."""
        items = [item for waiting in self._waiting.values() for *_, item in waiting]
        self._waiting.clear()
        return items

    def _first(self, during: Turn[T] | None) -> str | None:
        """Return whose turn it is."""
        if not self._waiting:
            return None
        # Of two with the same tag, whoever has the shorter text.
        client = min(self._waiting, key=lambda one: (self._tags[one], self._waiting[one][0]))
        if during is None:
            return client
        own = self._waiting.get(during.client)
        tag = self._tags.get(during.client, self._now)
        if client != during.client and self._tags[client] < tag:
            return client
        return during.client if own and own[0][0] < during.length else None

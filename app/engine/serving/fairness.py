"""Fairness between askers: how much of a pool one may have, and in which order texts are read.

An asker is an owner of keys, or an address where no keys are required. One rule for every pool: a
fifth of its places is reserved for other askers, so that nobody can exclude them.

Texts are read by turns, of each asker the shortest first. That is start-time fair queueing (Goyal,
Vin and Cheng 1996): every asker has a tag, the characters that were read for it. Of those that wait
the one with the lowest tag comes next, and begins no lower than the one that is read now, so that
whoever asked for nothing until now saved up nothing.
"""

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import count
from typing import Generic, TypeVar

from app.engine.serving.running import RunningJob

T = TypeVar("T")

_RESERVED = 5  # one place in so many


def reserved(places: int) -> int:
    """Return how many of some places one asker cannot have."""
    return places // _RESERVED


def share(places: int) -> int:
    """Return how many of some places one asker may have."""
    return places - reserved(places)


class Places:
    """A pool of places, of which each asker has at most its share. One thread only."""

    def __init__(self, limit: int) -> None:
        self.limit, self.taken = limit, 0
        self._of: Counter[str] = Counter()

    def free(self, asker: str, places: int = 1) -> bool:
        """Return whether an asker can take more places."""
        own = self._of[asker] + places
        return self.taken + places <= self.limit and own <= share(self.limit)

    def take(self, asker: str, places: int = 1) -> None:
        """Take places until `give_back`; the caller checks `free` before."""
        self.taken += places
        self._of[asker] += places

    def give_back(self, asker: str, places: int = 1) -> None:
        """Free places that were taken."""
        self.taken -= places
        self._of[asker] -= places
        if not self._of[asker]:
            del self._of[asker]

    @contextmanager
    def held(self, asker: str) -> Iterator[None]:
        """Take a place for the duration of a context; the caller checks `free` before."""
        self.take(asker)
        try:
            yield
        finally:
            self.give_back(asker)


class RowShares:
    """Chooses which of the waiting jobs gets rows of the batch next.

    Within a priority, the job comes first whose asker has the fewest rows, and of those the oldest.
    No job overtakes one that does not fit yet, or a large job would never begin. With two
    exceptions: a job whose asker has its full share waits without blocking others; and the reserved
    rows are for jobs that need no more than those, which therefore never delay a larger one.
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
        rows_by_asker, small = Counter[str](), 0
        for job in running:
            rows_by_asker[job.asker] += job.rows
            small += job.rows if self._is_small(job) else 0
        used, blocked, full = rows_by_asker.total(), False, set[str]()
        for job in sorted(waiting, key=lambda one: (one.priority, rows_by_asker[one.asker])):
            rows = job.rows
            if job.asker in full or rows_by_asker[job.asker] + rows > self._share:
                full.add(job.asker)
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
    """A text whose turn has come.

    Attributes:
        length: Its characters.
    """

    asker: str
    length: int
    item: T


class Turns(Generic[T]):
    """Texts that wait to be read. Not thread-safe."""

    def __init__(self) -> None:
        self._waiting: dict[str, list[tuple[int, int, T]]] = {}
        self._tags: dict[str, int] = {}
        self._now = 0  # the tag at which the text that is read now began
        self._added = count()

    def add(self, asker: str, length: int, item: T) -> None:
        """Let a text wait.

        Args:
            length: Its characters, or what else of work is as long as so many.
        """
        if asker not in self._waiting:
            self._waiting[asker] = []
            self._tags[asker] = max(self._now, self._tags.get(asker, 0))
        heappush(self._waiting[asker], (length, next(self._added), item))

    def next(self, during: Turn[T] | None = None) -> Turn[T] | None:
        """Return the text to read next; None if there is none.

        Args:
            during: The text that is being read: only one that goes before its rest is returned.
                That is a shorter one of the same asker, or one of an asker for whom less was read.
        """
        asker = self._first(during)
        if asker is None:
            return None
        if during is None and len(self._waiting) == 1:
            # Nobody else waits and nothing is read: whatever was before delays nobody.
            self._now = max(self._tags.values())
            self._tags = {asker: self._now}
        waiting = self._waiting[asker]
        length, _, item = heappop(waiting)
        self._now = max(self._now, self._tags[asker])
        self._tags[asker] += length
        if not waiting:
            del self._waiting[asker]
            # Of who does not wait, a tag that has been passed says no more than none.
            tags = self._tags.items()
            self._tags = {one: n for one, n in tags if n > self._now or one in self._waiting}
        return Turn(asker, length, item)

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
        asker = min(self._waiting, key=lambda one: (self._tags[one], self._waiting[one][0]))
        if during is None:
            return asker
        own = self._waiting.get(during.asker)
        if asker != during.asker and self._tags[asker] < self._tags.get(during.asker, self._now):
            return asker
        return during.asker if own and own[0][0] < during.length else None

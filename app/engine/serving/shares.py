"""Fair shares: how much of a pool one asker may have, so that nobody can exclude the others.

One rule for every pool: a fifth of its places is reserved for other askers. An asker is an owner of
keys, or an address where no keys are required.
"""

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager

from app.engine.interface import Plan
from app.engine.serving.ticket import Ticket

_RESERVED = 5  # one place in so many


def reserved(places: int) -> int:
    """Return how many of some places one asker cannot have."""
    return places // _RESERVED


def share(places: int) -> int:
    """Return how many of some places one asker may have."""
    return places - reserved(places)


def rows_of(ticket: Ticket) -> int:
    """Return how many rows of the batch a ticket takes; a replay takes none."""
    return ticket.work.rows if isinstance(ticket.work, Plan) else 0


class Places:
    """A pool of places, of which each asker has at most its share. One thread only.

    Attributes:
        limit: How many places there are.
        taken: How many of them are taken.
    """

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

    def next(self, waiting: Sequence[Ticket], running: Collection[Ticket]) -> Ticket | None:
        """Return the ticket that can begin now, or None.

        Args:
            waiting: Oldest first.
            running: Those that have rows.
        """
        rows_by_asker, small = Counter[str](), 0
        for ticket in running:
            rows_by_asker[ticket.asker] += rows_of(ticket)
            small += rows_of(ticket) if self._is_small(ticket) else 0
        used, blocked, full = rows_by_asker.total(), False, set[str]()
        for ticket in sorted(waiting, key=lambda one: (one.priority, rows_by_asker[one.asker])):
            rows = rows_of(ticket)
            if ticket.asker in full or rows_by_asker[ticket.asker] + rows > self._share:
                full.add(ticket.asker)
                continue
            if self._is_small(ticket):
                fits = used + rows <= self._slots
                if fits and (not blocked or small + rows <= self._reserved):
                    return ticket
            elif not blocked and used - small + rows <= self._share and used + rows <= self._slots:
                return ticket
            blocked = True
        return None

    def _is_small(self, ticket: Ticket) -> bool:
        """Return whether a job may have the reserved rows; without any, every job is small."""
        return not self._reserved or rows_of(ticket) <= self._reserved

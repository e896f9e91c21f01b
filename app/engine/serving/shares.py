"""How much of what all share one asker may have, so that nobody can keep the others out.

One rule for every pool: a fifth of its places is kept for others. An asker is an owner of keys, or
an address where nobody is asked for a key; see `app.api.gate.clients`.
"""

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager

from app.engine.interface import Plan
from app.engine.serving.ticket import Ticket

_KEPT = 5  # one place in so many


def kept(places: int) -> int:
    """Return how many of some places one asker cannot have."""
    return places // _KEPT


def share(places: int) -> int:
    """Return how many of some places one asker may have."""
    return places - kept(places)


def rows_of(ticket: Ticket) -> int:
    """Return how many rows a ticket takes while its level 0 is drawn; a replay none."""
    return ticket.work.rows if isinstance(ticket.work, Plan) else 0


class Places:
    """Places of some kind, held for a while; one thread only.

    Attributes:
        limit: How many there are.
        taken: How many are held.
    """

    def __init__(self, limit: int) -> None:
        """Begin with all of them free."""
        self.limit, self.taken = limit, 0
        self._of: Counter[str] = Counter()

    def free(self, asker: str) -> bool:
        """Tell whether somebody may have one more."""
        return self.taken < self.limit and self._of[asker] < share(self.limit)

    @contextmanager
    def held(self, asker: str) -> Iterator[None]:
        """Hold a place; whether one is `free` is for the caller to ask."""
        self.taken += 1
        self._of[asker] += 1
        try:
            yield
        finally:
            self.taken -= 1
            self._of[asker] -= 1
            if not self._of[asker]:
                del self._of[asker]


class RowShares:
    """Who of those who wait gets rows of the batch next.

    Of one priority, whoever's asker has the fewest rows comes first, and of several such, whoever
    came first. Nobody overtakes a job that has no room yet, or one that asks for much would never
    begin, but for two cases: a job whose asker has its share waits for that asker's own; and the
    rows that are kept are for jobs that take no more than those, who so never delay a larger one.
    """

    def __init__(self, slots: int) -> None:
        """Share rows.

        Args:
            slots: How many there are.
        """
        self._slots, self._kept, self._share = slots, kept(slots), share(slots)

    def next(self, waiting: Sequence[Ticket], running: Collection[Ticket]) -> Ticket | None:
        """Return who may begin now; None is nobody.

        Args:
            waiting: In the order in which they came.
            running: Those who have rows.
        """
        own, small = Counter[str](), 0
        for ticket in running:
            own[ticket.asker] += rows_of(ticket)
            small += rows_of(ticket) if self._is_small(ticket) else 0
        used, blocked, full = own.total(), False, set[str]()
        for ticket in sorted(waiting, key=lambda one: (one.priority, own[one.asker])):
            rows = rows_of(ticket)
            if ticket.asker in full or own[ticket.asker] + rows > self._share:
                full.add(ticket.asker)
                continue
            if self._is_small(ticket):
                room = used + rows <= self._slots
                if room and (not blocked or small + rows <= self._kept):
                    return ticket
            elif not blocked and used - small + rows <= self._share and used + rows <= self._slots:
                return ticket
            blocked = True
        return None

    def _is_small(self, ticket: Ticket) -> bool:
        """Tell whether a job may have rows that are kept; where none are, every job is alike."""
        return not self._kept or rows_of(ticket) <= self._kept

"""Tickets from their submission to the end of their jobs.

A ticket is first planned (its text is read), then it waits for the workers, then it runs.
"""

import threading
from collections import deque
from collections.abc import Callable, Sequence

from app.engine.interface import Plan, Replay
from app.engine.serving.fairness import share
from app.engine.serving.ticket import Ticket


class TicketQueue:
    """The tickets that are being planned, that wait, and that run. Thread-safe.

    Attributes:
        free_rows: Rows of the batch that no job has; kept up to date by the scheduler.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._planning: deque[Ticket] = deque()
        self._waiting: list[Ticket] = []
        self._running: set[Ticket] = set()
        self._closed = self._woken = False
        self._changed = threading.Condition()
        self.free_rows = 0

    def __len__(self) -> int:
        """Count the tickets that are being planned or wait."""
        return len(self._planning) + len(self._waiting)

    @property
    def closed(self) -> bool:
        """Whether no ticket is admitted any more."""
        return self._closed

    @property
    def empty(self) -> bool:
        """Whether no ticket is being planned, waits or runs."""
        with self._changed:
            return not (self._planning or self._waiting or self._running)

    @property
    def running(self) -> frozenset[Ticket]:
        """The tickets that were popped and are not done."""
        with self._changed:
            return frozenset(self._running)

    @property
    def waiting(self) -> Sequence[Ticket]:
        """The tickets that are planned and do not run yet, in order."""
        with self._changed:
            return tuple(self._waiting)

    def admit(self, ticket: Ticket) -> bool:
        """Add a ticket that is to be planned; return False if there is no place for its asker."""
        with self._changed:
            own = sum(one.asker == ticket.asker for one in (*self._planning, *self._waiting))
            places, own_places = (n + self.free_rows for n in (self._limit, share(self._limit)))
            admitted = len(self) < places and own < own_places and not self._closed
            if admitted:
                self._planning.append(ticket)
            return admitted

    def enqueue(self, ticket: Ticket, work: Plan | Replay) -> None:
        """Let a ticket wait for the workers; no-op if it was removed while it was planned."""
        with self._changed:
            if ticket in self._planning:
                self._planning.remove(ticket)
                ticket.work = work
                self._waiting.append(ticket)
                self.wake()

    def remove(self, ticket: Ticket) -> bool:
        """Remove a ticket that does not run yet; return False if it is not here."""
        with self._changed:
            for tickets in (self._planning, self._waiting):
                if ticket in tickets:
                    tickets.remove(ticket)
                    return True
            return False

    def pop(self, choose: Callable[[Sequence[Ticket]], Ticket | None]) -> Ticket | None:
        """Return the next ticket, which then runs; None if there is none.

        Args:
            choose: Returns one of the waiting tickets, which it gets in order; None if none of
                them can run yet.
        """
        with self._changed:
            ticket = None if self._closed or not self._waiting else choose(self._waiting)
            if ticket is not None:
                self._waiting.remove(ticket)
                self._running.add(ticket)
            return ticket

    def done(self, ticket: Ticket) -> None:
        """Remove a ticket that ran."""
        with self._changed:
            self._running.discard(ticket)
            self.wake()

    def wait(self, at_most_s: float) -> None:
        """Wait for `enqueue`, `done` or `wake`; return at once if one came since the last wait."""
        with self._changed:
            if not self._woken and not self._closed:
                self._changed.wait(at_most_s)
            self._woken = False

    def wake(self) -> None:
        """End a wait."""
        with self._changed:
            self._woken = True
            self._changed.notify_all()

    def close(self) -> list[Ticket]:
        """Admit and pop no more; return the tickets that did not run yet."""
        with self._changed:
            left = [*self._planning, *self._waiting]
            self._planning.clear()
            self._waiting.clear()
            self._closed = True
            self._changed.notify_all()
            return left

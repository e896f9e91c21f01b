"""Tickets between their submission and the workers, in the order in which they came.

A ticket's text is read first, then it waits, then it runs; the first two count towards the bound.
"""

import threading
from collections import deque
from collections.abc import Callable, Sequence

from app.engine.interface import Plan, Replay
from app.engine.serving.shares import share
from app.engine.serving.ticket import Ticket


class TicketQueue:
    """Who is being read, who waits and who runs. Any thread may call.

    Attributes:
        free_rows: Rows of the batch that no job has; whoever runs the batch keeps it true.
    """

    def __init__(self, limit: int) -> None:
        """Begin empty.

        Args:
            limit: Tickets that may be here beside those for whom rows are free.
        """
        self._limit = limit
        self._reading: deque[Ticket] = deque()
        self._waiting: list[Ticket] = []
        self._running: set[Ticket] = set()
        self._closed = self._woken = False
        self._changed = threading.Condition()
        self.free_rows = 0

    def __len__(self) -> int:
        """How many are here, those that run left out."""
        return len(self._reading) + len(self._waiting)

    @property
    def closed(self) -> bool:
        """Whether nobody is let in any more."""
        return self._closed

    @property
    def empty(self) -> bool:
        """Whether nobody is being read, waits or runs."""
        with self._changed:
            return not (self._reading or self._waiting or self._running)

    @property
    def running(self) -> frozenset[Ticket]:
        """Those that were taken and are not done."""
        with self._changed:
            return frozenset(self._running)

    @property
    def waiting(self) -> Sequence[Ticket]:
        """Those whose text is read and who do not run yet, in their order."""
        with self._changed:
            return tuple(self._waiting)

    def admit(self, ticket: Ticket) -> bool:
        """Give a ticket a place while its text is read; False if all of its asker's are taken."""
        with self._changed:
            own = sum(one.asker == ticket.asker for one in (*self._reading, *self._waiting))
            places, its = (many + self.free_rows for many in (self._limit, share(self._limit)))
            admitted = len(self) < places and own < its and not self._closed
            if admitted:
                self._reading.append(ticket)
            return admitted

    def line_up(self, ticket: Ticket, work: Plan | Replay) -> None:
        """Let a ticket wait for the workers; one that has left meanwhile stays away."""
        with self._changed:
            if ticket in self._reading:
                self._reading.remove(ticket)
                ticket.work = work
                self._waiting.append(ticket)
                self.wake()

    def leave(self, ticket: Ticket) -> bool:
        """Take a ticket out that has not begun to run; False if it is not here."""
        with self._changed:
            for line in (self._reading, self._waiting):
                if ticket in line:
                    line.remove(ticket)
                    return True
            return False

    def take(self, choose: Callable[[Sequence[Ticket]], Ticket | None]) -> Ticket | None:
        """Return the next ticket, which then runs; None if there is none, or none has room yet.

        Args:
            choose: Returns one of those who wait, who are given in the order in which they came.
        """
        with self._changed:
            ticket = None if self._closed or not self._waiting else choose(self._waiting)
            if ticket is not None:
                self._waiting.remove(ticket)
                self._running.add(ticket)
            return ticket

    def done(self, ticket: Ticket) -> None:
        """Let a ticket go that ran; there may be room for another."""
        with self._changed:
            self._running.discard(ticket)
            self.wake()

    def wait(self, at_most_s: float) -> None:
        """Wait until somebody lines up or calls `wake`, at once if that was since the last wait."""
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
        """Give nothing more to the workers; return those who had not begun to run."""
        with self._changed:
            left = [*self._reading, *self._waiting]
            self._reading.clear()
            self._waiting.clear()
            self._closed = True
            self._changed.notify_all()
            return left

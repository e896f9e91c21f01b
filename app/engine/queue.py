"""Tickets between their submission and the worker, in the order in which they came.

A ticket's text is read first, then it waits, then it runs; all three count towards the bound.
"""

import threading
from collections import deque
from collections.abc import Callable

from app.engine.speaking import Plan, Replay
from app.engine.ticket import Ticket


class TicketQueue:
    """Who is being read, who waits and who runs. Any thread may call."""

    def __init__(self, limit: int) -> None:
        """Begin empty.

        Args:
            limit: Tickets that may be here beside the one that runs.
        """
        self._limit = limit
        self._reading: deque[Ticket] = deque()
        self._waiting: deque[Ticket] = deque()
        self._closed = False
        self._changed = threading.Condition()
        self.running: Ticket | None = None

    def __len__(self) -> int:
        """How many are here, the one that runs left out."""
        return len(self._reading) + len(self._waiting)

    def admit(self, ticket: Ticket) -> bool:
        """Give a ticket a place while its text is read; False if all are taken."""
        with self._changed:
            admitted = len(self) < self._limit + (self.running is None)
            if admitted:
                self._reading.append(ticket)
            return admitted

    def line_up(self, ticket: Ticket, work: Plan | Replay) -> None:
        """Let a ticket wait for the worker; one that has left meanwhile stays away."""
        with self._changed:
            if ticket in self._reading:
                self._reading.remove(ticket)
                ticket.work = work
                self._waiting.append(ticket)
                self._changed.notify_all()

    def leave(self, ticket: Ticket) -> bool:
        """Take a ticket out that has not begun to run; False if it is not here."""
        with self._changed:
            for line in (self._reading, self._waiting):
                if ticket in line:
                    line.remove(ticket)
                    return True
            return False

    def take(self, on_wait: Callable[[], None], every_s: float) -> Ticket | None:
        """Wait for the next ticket, which then runs; None once the queue is closed.

        Args:
            on_wait: Called before each stretch of waiting.
            every_s: The longest such stretch.
        """
        with self._changed:
            self.running = None
            while not self._waiting:
                if self._closed:
                    return None
                on_wait()
                self._changed.wait(every_s)
            self.running = self._waiting.popleft()
            return self.running

    def close(self) -> list[Ticket]:
        """Give nothing more to the worker; return those who had not begun to run."""
        with self._changed:
            left = [*self._reading, *self._waiting]
            self._reading.clear()
            self._waiting.clear()
            self._closed = True
            self._changed.notify_all()
            return left

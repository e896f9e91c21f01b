"""The jobs that are being planned, that wait, and that run."""

import threading
from collections import deque
from collections.abc import Callable, Sequence

from app.engine.admission.quota import share
from app.engine.core import Plan
from app.engine.serving.running import JobHandle


class JobQueue:
    """The jobs that are being planned, that wait, and that run. Thread-safe."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._planning: deque[JobHandle] = deque()
        self._waiting: list[JobHandle] = []
        self._running: set[JobHandle] = set()
        self.closed = False  # whether no job is admitted any more
        self._woken = False
        self._changed = threading.Condition()
        self.free_rows = 0  # rows of the batch that no job has; kept up to date by the scheduler

    def __len__(self) -> int:
        """Count the jobs that are being planned or wait."""
        return len(self._planning) + len(self._waiting)

    @property
    def empty(self) -> bool:
        """Whether no job is being planned, waits or runs."""
        with self._changed:
            return not (self._planning or self._waiting or self._running)

    @property
    def running(self) -> frozenset[JobHandle]:
        """The jobs that were popped and are not done."""
        with self._changed:
            return frozenset(self._running)

    @property
    def waiting(self) -> Sequence[JobHandle]:
        """The jobs that are planned and do not run yet, in order."""
        with self._changed:
            return tuple(self._waiting)

    @property
    def left_s(self) -> list[float]:
        """Seconds of audio that are left of each job: planned, waiting, or in work."""
        with self._changed:
            jobs = [*self._planning, *self._waiting, *self._running]
        return [job.playback.left_s for job in jobs]

    def rows_left_for(self, client: str) -> bool:
        """Return whether rows are free beside the waiting jobs that go before one of a client.

        The first job of a client goes before further ones of those who have one running.
        """
        with self._changed:
            running = {job.client for job in self._running}
            behind = set() if client in running else running
            # How many rows one takes is known once it is planned; until then it counts for one.
            planned = sum(job.client not in behind for job in self._planning)
            waiting = sum(job.rows for job in self._waiting if job.client not in behind)
            return self.free_rows > planned + waiting

    def has(self, client: str) -> bool:
        """Return whether a client has a job here."""
        with self._changed:
            jobs = (*self._planning, *self._waiting, *self._running)
            return any(job.client == client for job in jobs)

    def admit(self, job: JobHandle) -> bool:
        """Add a job that is to be planned; return False if there is no place for its client."""
        with self._changed:
            own = sum(one.client == job.client for one in (*self._planning, *self._waiting))
            places = self._limit + self.free_rows
            own_places = share(self._limit) + self.free_rows
            admitted = len(self) < places and own < own_places and not self.closed
            if admitted:
                self._planning.append(job)
            return admitted

    def enqueue(self, job: JobHandle, plan: Plan | None = None) -> None:
        """Let a job wait for the workers; no-op if it was removed while it was planned."""
        with self._changed:
            if job in self._planning:
                self._planning.remove(job)
                job.plan = plan
                self._waiting.append(job)
                self.wake()

    def remove(self, job: JobHandle) -> bool:
        """Remove a job that does not run yet; return False if it is not here."""
        with self._changed:
            for jobs in (self._planning, self._waiting):
                if job in jobs:
                    jobs.remove(job)
                    return True
            return False

    def pop(self, choose: Callable[[Sequence[JobHandle]], JobHandle | None]) -> JobHandle | None:
        """Return the next job, which then runs; None if there is none.

        ``choose`` returns one of the waiting jobs, given in order, or None if none can run yet.
        """
        with self._changed:
            job = None if self.closed or not self._waiting else choose(self._waiting)
            if job is not None:
                self._waiting.remove(job)
                self._running.add(job)
            return job

    def done(self, job: JobHandle) -> None:
        """Remove a job that ran."""
        with self._changed:
            self._running.discard(job)
            self.wake()

    def wait(self, at_most_s: float) -> None:
        """Wait for `enqueue`, `done` or `wake`; return at once if one came since the last wait."""
        with self._changed:
            if not self._woken and not self.closed:
                self._changed.wait(at_most_s)
            self._woken = False

    def wake(self) -> None:
        """End a wait."""
        with self._changed:
            self._woken = True
            self._changed.notify_all()

    def close(self) -> list[JobHandle]:
        """Admit and pop no more; return the jobs that did not run yet."""
        with self._changed:
            left = [*self._planning, *self._waiting]
            self._planning.clear()
            self._waiting.clear()
            self.closed = True
            self._changed.notify_all()
            return left

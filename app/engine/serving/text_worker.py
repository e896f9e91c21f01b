"""The thread that reads the texts of jobs, so that they know what they will speak."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from heapq import heappop, heappush
from itertools import count
from threading import Lock

from app.engine.errors import InvalidRequest, SpeechError, broken
from app.engine.interface import Backend, Plan
from app.engine.job import SpeechJob
from app.engine.serving.accounts import Accounts
from app.engine.serving.queue import TicketQueue
from app.engine.serving.shares import share
from app.engine.serving.ticket import Ticket
from samplers.knobs.rows import knob_at_fault

Forecast = Callable[[Ticket, Plan], None]


class TextWorker:
    """Makes plans of jobs, the shortest text first: a sentence waits for one long text at most."""

    def __init__(
        self, queue: TicketQueue, accounts: Accounts, forecast: Forecast, *, slots: int
    ) -> None:
        """Read nothing yet.

        Args:
            queue: Where jobs wait that can be spoken.
            accounts: Told of those that cannot.
            forecast: Given a ticket and its plan, notes what to expect of it.
            slots: Rows of the batch; a job may not take more than one asker's share of them.
        """
        self._queue, self._accounts, self._forecast = queue, accounts, forecast
        self._slots, self._share = slots, share(slots)
        # espeak-ng reads one text at a time in a process, so more threads would only wait.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="speech-text")
        self._unread: list[tuple[int, int, Backend, Ticket, SpeechJob]] = []
        self._came = count()
        self._changing = Lock()

    def read(self, backend: Backend, ticket: Ticket, job: SpeechJob) -> None:
        """Let a job be planned and lined up, or refused, when its turn comes."""
        with self._changing:
            heappush(self._unread, (len(job.text), next(self._came), backend, ticket, job))
        self._thread.submit(self._read_next)

    def close(self) -> None:
        """Read no more."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    def _read_next(self) -> None:
        with self._changing:
            *_, backend, ticket, job = heappop(self._unread)
        self._read(backend, ticket, job)

    def _read(self, backend: Backend, ticket: Ticket, job: SpeechJob) -> None:
        if ticket.abandoned is not None:
            if self._queue.remove(ticket):
                self._accounts.ended(ticket, ticket.abandoned)
            return
        refusal: SpeechError
        try:
            plan = self._fitting(backend.plan(job))
            self._forecast(ticket, plan)
        except SpeechError as error:
            refusal = error
        except Exception as error:
            refusal = broken(ticket.job_id, error)
        else:
            self._queue.enqueue(ticket, plan)
            return
        if self._queue.remove(ticket):
            self._accounts.refused(ticket, refusal)

    def _fitting(self, plan: Plan) -> Plan:
        """Return a plan that has room in an empty batch, and leaves the rows that are kept.

        Raises:
            InvalidRequest: It has not.
        """
        if plan.rows > self._share:
            raise InvalidRequest(
                f"that takes {plan.rows} rows of the batch, and one may have {self._share} of"
                f" {self._slots}",
                param=knob_at_fault(plan.params),
            )
        return plan

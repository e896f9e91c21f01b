"""The worker that plans jobs: converts their texts to phonemes, in a thread of its own."""

import math
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from heapq import heappop, heappush
from itertools import count
from threading import Lock

from app.engine.errors import InvalidRequest, SpeechError, broken
from app.engine.interface import Backend, Plan, Reading
from app.engine.job import Codes, SpeechJob
from app.engine.serving.outcomes import Outcomes
from app.engine.serving.queue import TicketQueue
from app.engine.serving.shares import share
from app.engine.serving.ticket import Ticket
from samplers.knobs.features import knob_at_fault

Forecast = Callable[[Ticket, Plan], None]


class TextWorker:
    """Plans jobs, the shortest text first; a longer one waits between two of its pieces.

    So a sentence waits for one piece of a long text, some milliseconds, however many long texts
    there are.
    """

    def __init__(
        self, queue: TicketQueue, outcomes: Outcomes, forecast: Forecast, *, slots: int
    ) -> None:
        """Begin with no jobs.

        Args:
            queue: Gets the planned jobs.
            outcomes: Records the jobs that are refused.
            forecast: Called with each ticket and its plan before it is queued.
            slots: Rows of the batch; a job cannot take more than one asker's share of them.
        """
        self._queue, self._outcomes, self._forecast = queue, outcomes, forecast
        self._slots, self._share = slots, share(slots)
        # espeak-ng reads one text at a time in a process, so more threads would only wait.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="speech-text")
        self._jobs: list[tuple[int, int, Backend, Ticket, SpeechJob]] = []
        self._submitted = count()
        self._lock = Lock()

    def read(self, backend: Backend, ticket: Ticket, job: SpeechJob) -> None:
        """Submit a job to be planned and queued, or refused."""
        with self._lock:
            heappush(self._jobs, (len(job.text), next(self._submitted), backend, ticket, job))
        self._thread.submit(self._plan_shortest)

    def preview(self, backend: Backend, job: SpeechJob) -> "Future[Reading]":
        """Submit the text of a job to be read and not spoken; shorter jobs come first."""
        return self._thread.submit(self._read_alone, backend, job)

    def encode(self, backend: Backend, job_id: str, content: bytes) -> "Future[Codes]":
        """Submit a recording to be encoded; texts wait for it."""
        return self._thread.submit(self._encode, backend, job_id, content)

    def close(self) -> None:
        """Plan no more jobs."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    @staticmethod
    def _encode(backend: Backend, job_id: str, content: bytes) -> Codes:
        """Encode a recording.

        Raises:
            SpeechError: It cannot be read, or encoding failed.
        """
        try:
            return backend.encode(content)
        except SpeechError:
            raise
        except Exception as error:
            failure: SpeechError = broken(job_id, error)
            raise failure from error

    def _read_alone(self, backend: Backend, job: SpeechJob) -> Reading:
        """Read a text.

        Raises:
            SpeechError: The text cannot be spoken, or reading it failed.
        """
        try:
            return backend.read(job, partial(self._plan_all, below=len(job.text)))
        except SpeechError:
            raise
        except Exception as error:
            failure: SpeechError = broken(job.id, error)
            raise failure from error

    def _plan_shortest(self, below: float = math.inf) -> bool:
        """Plan the job with the shortest text.

        Args:
            below: Only if it has fewer characters.

        Returns:
            Whether there was one.
        """
        with self._lock:
            if not self._jobs or self._jobs[0][0] >= below:
                return False
            *_, backend, ticket, job = heappop(self._jobs)
        if ticket.abandoned is not None:
            if self._queue.remove(ticket):
                self._outcomes.ended(ticket, ticket.abandoned)
            return True
        refusal: SpeechError
        try:
            plan = backend.plan(job, on_piece=partial(self._plan_all, below=len(job.text)))
            self._check_rows(plan)
            self._forecast(ticket, plan)
        except SpeechError as error:
            refusal = error
        except Exception as error:
            refusal = broken(ticket.job_id, error)
        else:
            self._queue.enqueue(ticket, plan)
            return True
        if self._queue.remove(ticket):
            self._outcomes.refused(ticket, refusal)
        return True

    def _plan_all(self, below: float) -> None:
        """Plan all jobs with fewer characters, the shortest first."""
        while self._plan_shortest(below):
            pass

    def _check_rows(self, plan: Plan) -> None:
        """Do nothing if a plan takes no more rows than one asker's share.

        Raises:
            InvalidRequest: It takes more.
        """
        if plan.rows > self._share:
            raise InvalidRequest(
                f"that takes {plan.rows} rows of the batch, and one may have {self._share} of"
                f" {self._slots}",
                param=knob_at_fault(plan.params),
            )

"""The worker that plans jobs: converts their texts to phonemes, in a thread of its own."""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from threading import Lock
from typing import Any, NamedTuple, TypeVar

from app.engine.admission import Capacity, pauses_s, share, spoken_symbols
from app.engine.errors import InvalidRequest, SpeechError, broken
from app.engine.interface import Backend, Plan, Reading
from app.engine.job import Codes, SpeechJob
from app.engine.serving.fairness import Turn, Turns
from app.engine.serving.outcomes import Outcomes
from app.engine.serving.running import JobQueue, RunningJob
from samplers.knobs.features import knob_at_fault

OnPiece = Callable[[], None]
T = TypeVar("T")

TEXT_CHARS, RECORDING_CHARS = 64, 4096
"""What is counted of a text besides its own characters, and of a recording: about as many
characters are read in the time that any text takes, however short, or a recording."""


class _TextCall(NamedTuple):
    """What is done when its turn has come: ``run(on_piece)`` is the result of ``done``."""

    run: Callable[[OnPiece], Any]
    done: "Future[Any]"


class TextWorker:
    """Plans jobs: clients take turns, and each has its shortest text read first.

    Between two pieces of a text whatever comes before its rest is read: the shorter texts of the
    same client, and those of others for whom less was read (`app.engine.serving.fairness`). So a
    sentence waits for one piece of a long text, some milliseconds, however many long texts there
    are, and for one text of each other client, however short those are.
    """

    def __init__(
        self, queue: JobQueue, outcomes: Outcomes, capacity: Capacity, *, slots: int
    ) -> None:
        self._queue, self._outcomes, self._capacity = queue, outcomes, capacity
        self._slots, self._share = slots, share(slots)
        # espeak-ng reads one text at a time in a process, so more threads would only wait.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="speech-text")
        self._turns, self._lock = Turns[_TextCall](), Lock()

    def read(self, backend: Backend, job: RunningJob, asked: SpeechJob) -> None:
        """Submit a job to be planned and queued, or refused."""
        self._submit(asked.client, _chars(asked), partial(self._plan, backend, job, asked))

    def preview(self, backend: Backend, job: SpeechJob) -> "Future[Reading]":
        """Submit the text of a job to be read and not spoken."""
        return self._submit(job.client, _chars(job), partial(self._read_alone, backend, job))

    def encode(
        self, backend: Backend, job_id: str, content: bytes, client: str = ""
    ) -> "Future[Codes]":
        """Submit a recording to be encoded; texts wait for it."""
        return self._submit(
            client, RECORDING_CHARS, lambda _: self._encode(backend, job_id, content)
        )

    def close(self) -> None:
        """Plan no more jobs."""
        with self._lock:
            for work in self._turns.clear():
                work.done.cancel()
        self._thread.shutdown(wait=False, cancel_futures=True)

    def _submit(self, client: str, length: int, run: Callable[[OnPiece], T]) -> "Future[T]":
        """Have something done in the thread, when its turn has come."""
        done: Future[T] = Future()
        with self._lock:
            self._turns.add(client, length, _TextCall(run, done))
        self._thread.submit(self._do_next)
        return done

    def _do_next(self, during: Turn[_TextCall] | None = None) -> bool:
        """Do what comes next."""
        with self._lock:
            turn = self._turns.next(during)
        if turn is None:
            return False
        run, done = turn.item
        if done.set_running_or_notify_cancel():
            try:
                done.set_result(run(partial(self._do_all, turn)))
            except BaseException as error:
                done.set_exception(error)
        return True

    def _do_all(self, during: Turn[_TextCall]) -> None:
        """Do all that comes before the rest of what is being done."""
        while self._do_next(during):
            pass

    @staticmethod
    def _encode(backend: Backend, job_id: str, content: bytes) -> Codes:
        """Encode a recording."""
        try:
            return backend.encode(content)
        except SpeechError:
            raise
        except Exception as error:
            failure: SpeechError = broken(job_id, error)
            raise failure from error

    @staticmethod
    def _read_alone(backend: Backend, job: SpeechJob, on_piece: OnPiece) -> Reading:
        """Read a text."""
        try:
            return backend.read(job, on_piece)
        except SpeechError:
            raise
        except Exception as error:
            failure: SpeechError = broken(job.id, error)
            raise failure from error

    def _plan(self, backend: Backend, job: RunningJob, asked: SpeechJob, on_piece: OnPiece) -> None:
        """Plan a job and queue it, or refuse it."""
        if job.abandoned is not None:
            if self._queue.remove(job):
                self._outcomes.ended(job, job.abandoned)
            return
        refusal: SpeechError
        try:
            plan = backend.plan(asked, on_piece)
            self._check_rows(plan)
            speech_s = self._capacity.speech_s(spoken_symbols(plan.utterances))
            silence_s = pauses_s(plan.utterances, plan.params.pause_s, more=asked.more)
            job.playback.expected_s = speech_s + silence_s
        except SpeechError as error:
            refusal = error
        except Exception as error:
            refusal = broken(job.id, error)
        else:
            self._queue.enqueue(job, plan)
            return
        if self._queue.remove(job):
            self._outcomes.refused(job, refusal)

    def _check_rows(self, plan: Plan) -> None:
        """Do nothing if a plan takes no more rows than one client's share."""
        if plan.rows > self._share:
            raise InvalidRequest(
                f"that takes {plan.rows} rows of the batch, and one may have {self._share} of"
                f" {self._slots}",
                param=knob_at_fault(plan.params),
            )


def _chars(job: SpeechJob) -> int:
    """Return how many characters' time the text of a job takes."""
    return TEXT_CHARS + len(job.text)

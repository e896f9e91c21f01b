"""The worker that plans jobs: converts their texts to phonemes, in a thread of its own."""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from heapq import heappop, heappush
from itertools import count
from threading import Lock
from typing import Any, TypeVar

from app.engine.admission import Capacity, pauses_s, share, spoken_symbols
from app.engine.errors import InvalidRequest, broken
from app.engine.interface import Backend, Plan, Reading
from app.engine.job import Codes, SpeechJob
from app.engine.serving.outcomes import Outcomes
from app.engine.serving.running import JobQueue, RunningJob
from samplers.knobs.features import knob_at_fault

OnPiece = Callable[[], None]
T = TypeVar("T")

TEXT_CHARS, RECORDING_CHARS = 64, 4096
"""What is counted of a text besides its own characters, and of a recording: about as many
characters are read in the time that any text takes, however short, or a recording."""


@dataclass(frozen=True, slots=True, eq=False)
class TextCall:
    """What is done for a job when its turn has come: ``done`` gets what ``run(on_piece)`` gives."""

    job_id: str
    client: str
    length: int  # its characters, or what else of work is as long as so many
    run: Callable[[OnPiece], Any]
    done: "Future[Any]" = field(default_factory=Future)


class Turns:
    """Texts that wait to be read. Not thread-safe.

    Clients take turns, and each has its shortest text read first. That is start-time fair queueing
    (Goyal, Vin and Cheng 1996): every client has a tag, the characters that were read for it. Of
    the waiting clients the one with the lowest tag comes next; a new one begins no lower than the
    one that is read now, so that nobody saves up turns.
    """

    def __init__(self) -> None:
        self._waiting: dict[str, list[tuple[int, int, TextCall]]] = {}
        self._tags: dict[str, int] = {}
        self._now = 0  # the tag at which the text that is read now began
        self._added = count()

    def add(self, call: TextCall) -> None:
        """Let a text wait."""
        client = call.client
        if client not in self._waiting:
            self._waiting[client] = []
            self._tags[client] = max(self._now, self._tags.get(client, 0))
        heappush(self._waiting[client], (call.length, next(self._added), call))

    def next(self, during: TextCall | None = None) -> TextCall | None:
        """Return the text to read next; None if there is none.

        While ``during`` is read only one that goes before its rest is returned: a shorter one of
        the same client, or one of a client for whom less was read.
        """
        client = self._first(during)
        if client is None:
            return None
        if during is None and len(self._waiting) == 1:
            # Nobody else waits and nothing is read: whatever was before delays nobody.
            self._now = max(self._tags.values())
            self._tags = {client: self._now}
        waiting = self._waiting[client]
        _, _, call = heappop(waiting)
        self._now = max(self._now, self._tags[client])
        self._tags[client] += call.length
        if not waiting:
            del self._waiting[client]
            # Of who does not wait, a tag that has been passed says no more than none.
            tags = self._tags.items()
            self._tags = {one: n for one, n in tags if n > self._now or one in self._waiting}
        return call

    def clear(self) -> None:
        """Remove all; nobody gets a result."""
        for waiting in self._waiting.values():
            for *_, call in waiting:
                call.done.cancel()
        self._waiting.clear()

    def _first(self, during: TextCall | None) -> str | None:
        """Return whose turn it is."""
        if not self._waiting:
            return None
        # Of two with the same tag, whoever has the shorter text.
        client = min(self._waiting, key=lambda one: (self._tags[one], self._waiting[one][0]))
        if during is None:
            return client
        own = self._waiting.get(during.client)
        tag = self._tags.get(during.client, self._now)
        if client != during.client and self._tags[client] < tag:
            return client
        return during.client if own and own[0][0] < during.length else None


class TextWorker:
    """Plans jobs, whose texts are read by `Turns`.

    Between two pieces of a text whatever comes before its rest is read. So a sentence waits for one
    piece of a long text, some milliseconds, however many long texts there are, and for one text of
    each other client, however short those are.
    """

    def __init__(
        self, queue: JobQueue, outcomes: Outcomes, capacity: Capacity, *, slots: int
    ) -> None:
        self._queue, self._outcomes, self._capacity = queue, outcomes, capacity
        self._slots, self._share = slots, share(slots)
        # espeak-ng reads one text at a time in a process, so more threads would only wait.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="speech-text")
        self._turns, self._lock = Turns(), Lock()

    def read(self, backend: Backend, job: RunningJob, asked: SpeechJob) -> None:
        """Submit a job to be planned and queued, or refused."""
        self._submit(asked, partial(self._plan, backend, job, asked))

    def preview(self, backend: Backend, job: SpeechJob) -> "Future[Reading]":
        """Submit the text of a job to be read and not spoken."""
        return self._submit(job, partial(backend.read, job))

    def encode(
        self, backend: Backend, job_id: str, content: bytes, client: str = ""
    ) -> "Future[Codes]":
        """Submit a recording to be encoded; texts wait for it."""
        call = TextCall(job_id, client, RECORDING_CHARS, lambda _: backend.encode(content))
        return self._add(call)

    def close(self) -> None:
        """Plan no more jobs."""
        with self._lock:
            self._turns.clear()
        self._thread.shutdown(wait=False, cancel_futures=True)

    def _submit(self, job: SpeechJob, run: Callable[[OnPiece], Any]) -> "Future[Any]":
        """Have something done with the text of a job, when its turn has come."""
        return self._add(TextCall(job.id, job.client, TEXT_CHARS + len(job.text), run))

    def _add(self, call: TextCall) -> "Future[Any]":
        with self._lock:
            self._turns.add(call)
        self._thread.submit(self._do_next)
        return call.done

    def _do_next(self, during: TextCall | None = None) -> bool:
        """Do what comes next."""
        with self._lock:
            call = self._turns.next(during)
        if call is None:
            return False
        if call.done.set_running_or_notify_cancel():
            try:
                call.done.set_result(call.run(partial(self._do_all, call)))
            except BaseException as error:
                call.done.set_exception(broken(call.job_id, error))
        return True

    def _do_all(self, during: TextCall) -> None:
        """Do all that comes before the rest of what is being done."""
        while self._do_next(during):
            pass

    def _plan(self, backend: Backend, job: RunningJob, asked: SpeechJob, on_piece: OnPiece) -> None:
        """Plan a job and queue it, or refuse it."""
        if job.abandoned is not None:
            if self._queue.remove(job):
                self._outcomes.ended(job, job.abandoned)
            return
        try:
            plan = backend.plan(asked, on_piece)
            self._check_rows(plan)
            speech_s = self._capacity.speech_s(spoken_symbols(plan.utterances))
            silence_s = pauses_s(plan.utterances, plan.params.pause_s, more=asked.more)
            job.playback.expected_s = speech_s + silence_s
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

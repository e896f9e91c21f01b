"""The worker that plans jobs: converts their texts to phonemes, in a thread of its own."""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from heapq import heappop, heappush
from itertools import count
from threading import Lock
from typing import Any, TypeVar

from app.engine.admission import Capacity, pauses_s, share, spoken_symbols
from app.engine.errors import InvalidRequest, broken
from app.engine.interface import Backend, Plan, Reading
from app.engine.job import Codes, SpeechJob
from app.engine.serving.running import JobQueue, Outcomes, RunningJob
from samplers.knobs.features import knob_at_fault

OnPiece = Callable[[], None]
Turn = Callable[[OnPiece], object]
"""What is done when its turn has come; it calls its argument between two pieces."""

T = TypeVar("T")

TEXT_CHARS, RECORDING_CHARS = 64, 4096
"""What is counted of a text besides its own characters, and of a recording: about as many
characters are read in the time that any text takes, however short, or a recording."""


class Turns:
    """Texts that wait to be read. Not thread-safe.

    Clients take turns, and each has its shortest text read first. That is start-time fair queueing
    (Goyal, Vin and Cheng 1996): every client has a tag, the characters that were read for it. Of
    the waiting clients the one with the lowest tag comes next; a new one begins no lower than the
    one that is read now, so that nobody saves up turns.
    """

    def __init__(self) -> None:
        self._waiting: dict[str, list[tuple[int, int, Turn]]] = {}
        self._tags: dict[str, int] = {}
        self._now = 0  # the tag at which the text that is read now began
        self._added = count()
        self._reading: list[tuple[str, int]] = []  # clients and lengths, the innermost last

    def add(self, client: str, length: int, turn: Turn) -> None:
        """Let a text wait for its turn, or what is as long as so many characters."""
        if client not in self._waiting:
            self._waiting[client] = []
            self._tags[client] = max(self._now, self._tags.get(client, 0))
        heappush(self._waiting[client], (length, next(self._added), turn))

    def begin(self) -> Turn | None:
        """Return whose turn is next, to be followed by `end`; None if there is none.

        While one is read only one that goes before its rest is next: a shorter one of the same
        client, or one of a client for whom less was read.
        """
        client = self._first()
        if client is None:
            return None
        if not self._reading and len(self._waiting) == 1:
            # Nobody else waits and nothing is read: whatever was before delays nobody.
            self._now = max(self._tags.values())
            self._tags = {client: self._now}
        waiting = self._waiting[client]
        length, _, turn = heappop(waiting)
        self._now = max(self._now, self._tags[client])
        self._tags[client] += length
        if not waiting:
            del self._waiting[client]
            # Of who does not wait, a tag that has been passed says no more than none.
            tags = self._tags.items()
            self._tags = {one: n for one, n in tags if n > self._now or one in self._waiting}
        self._reading.append((client, length))
        return turn

    def end(self) -> None:
        """Note that what was begun last is done."""
        self._reading.pop()

    def clear(self) -> None:
        """Remove all that wait."""
        self._waiting.clear()

    def _first(self) -> str | None:
        """Return whose turn it is."""
        if not self._waiting:
            return None
        # Of two with the same tag, whoever has the shorter text.
        client = min(self._waiting, key=lambda one: (self._tags[one], self._waiting[one][0]))
        if not self._reading:
            return client
        reader, length = self._reading[-1]
        own = self._waiting.get(reader)
        tag = self._tags.get(reader, self._now)
        if client != reader and self._tags[client] < tag:
            return client
        return reader if own and own[0][0] < length else None


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
        self._results: set[Future[Any]] = set()  # that are waited for

    def read(self, backend: Backend, job: RunningJob, asked: SpeechJob) -> None:
        """Submit a job to be planned and queued, or refused."""
        length = TEXT_CHARS + len(asked.text)
        self._add(asked.client, length, partial(self._plan, backend, job, asked))

    def preview(self, backend: Backend, job: SpeechJob) -> "Future[Reading]":
        """Submit the text of a job to be read and not spoken."""
        length = TEXT_CHARS + len(job.text)
        return self._result(job.id, job.client, length, partial(backend.read, job))

    def encode(
        self, backend: Backend, job_id: str, content: bytes, client: str = ""
    ) -> "Future[Codes]":
        """Submit a recording to be encoded; texts wait for it."""
        return self._result(job_id, client, RECORDING_CHARS, lambda _: backend.encode(content))

    def close(self) -> None:
        """Plan no more jobs."""
        with self._lock:
            self._turns.clear()
        for waiting in tuple(self._results):
            waiting.cancel()
        self._thread.shutdown(wait=False, cancel_futures=True)

    def _result(
        self, job_id: str, client: str, length: int, run: Callable[[OnPiece], T]
    ) -> "Future[T]":
        """Have something done when its turn has come; return what it will give."""
        result: Future[T] = Future()

        def turn(on_piece: OnPiece) -> None:
            if not result.set_running_or_notify_cancel():
                return
            try:
                result.set_result(run(on_piece))
            except BaseException as error:
                result.set_exception(broken(job_id, error))

        self._results.add(result)
        result.add_done_callback(self._results.discard)
        self._add(client, length, turn)
        return result

    def _add(self, client: str, length: int, turn: Turn) -> None:
        with self._lock:
            self._turns.add(client, length, turn)
        self._thread.submit(self._do_next)

    def _do_next(self) -> bool:
        """Do what comes next; False if there is nothing."""
        with self._lock:
            turn = self._turns.begin()
        if turn is None:
            return False
        try:
            turn(self._do_all)
        finally:
            with self._lock:
                self._turns.end()
        return True

    def _do_all(self) -> None:
        """Do all that comes before the rest of what is being done."""
        while self._do_next():
            pass

    def _plan(self, backend: Backend, job: RunningJob, asked: SpeechJob, on_piece: OnPiece) -> None:
        """Plan a job and queue it, or refuse it."""
        if job.abandoned is not None:
            return
        try:
            plan = backend.plan(asked, on_piece)
            self._check_rows(plan)
            speech_s = self._capacity.speech_s(spoken_symbols(plan.utterances))
            silence_s = pauses_s(plan.utterances, plan.params.pause_s, more=asked.more)
            job.playback.expected_s = speech_s + silence_s
        except BaseException as error:
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

"""Jobs in, audio chunks out: who runs, who waits, who is told to go away.

For now one job at a time, in one worker thread that also loads the model, so the event loop is
always free to answer. Knows nothing of text, codes or HTTP.

The life of an engine: new -> loading -> warming -> ready -> draining -> stopped, or failed.
"""

import asyncio
import logging
import math
import threading
from collections import Counter, deque
from collections.abc import Callable
from time import monotonic
from typing import Self

from app.engine.errors import (
    EngineBusy,
    EngineNotReady,
    GenerationFailed,
    SpeechError,
)
from app.engine.job import FinishReason, Progress, SpeechJob, SpeechResult
from app.engine.speaking import ModelInfo, Speaking
from app.engine.status import WAITS_FOR, EngineStatus, State
from app.engine.ticket import SpeechStream, Ticket
from models.voice import BuiltinVoices
from samplers.params import SamplingParams

log = logging.getLogger(__name__)

_IDLE_BEAT_S = 5.0
_WARM_UP_TEXT = "Hello."
_WARM_UP_S = 0.2


class SpeechEngine:
    """Runs jobs one after another in a worker thread."""

    def __init__(
        self,
        load: Callable[[], Speaking],
        *,
        max_queue: int,
        request_timeout_s: float,
    ) -> None:
        """Make an engine that does nothing before `start`.

        Args:
            load: Makes the model; called once, in the worker.
            max_queue: Jobs that may wait beside the one that runs.
            request_timeout_s: Longest time from `submit` to the last chunk.
        """
        self._load = load
        self._max_queue = max_queue
        self._request_timeout_s = request_timeout_s
        self._speaking: Speaking | None = None
        self._state: State = "new"
        self._error: str | None = None
        self._waiting: deque[Ticket] = deque()
        self._running: Ticket | None = None
        self._changed = threading.Condition()
        self._worker: threading.Thread | None = None
        self._beat_s = monotonic()
        self._job_s = 2.0  # a guess, until jobs have been measured
        self.finished: Counter[FinishReason] = Counter()

    @property
    def status(self) -> EngineStatus:
        """How the engine is now."""
        state = self._state
        return EngineStatus(
            state=state,
            waits_for=WAITS_FOR.get(state),
            error=self._error,
            queued=len(self._waiting),
            running=int(self._running is not None),
            beat_age_s=monotonic() - self._beat_s,
        )

    @property
    def info(self) -> ModelInfo:
        """What the outside may know of the model.

        Raises:
            EngineNotReady: It is not loaded.
        """
        return self._loaded().info

    @property
    def voices(self) -> BuiltinVoices:
        """Who the model can speak as.

        Raises:
            EngineNotReady: It is not loaded.
        """
        return self._loaded().voices

    def start(self) -> None:
        """Start the worker, which loads the model; `status` tells when it is ready."""
        self._worker = threading.Thread(target=self._work, name="speech-engine", daemon=True)
        self._worker.start()

    def submit(self, job: SpeechJob) -> SpeechStream:
        """Take a job or refuse it, at once. Must be called on an event loop.

        Returns:
            An async iterator of its chunks; close it to cancel the job.

        Raises:
            EngineNotReady: It is not running.
            EngineBusy: As many jobs wait as may.
            SpeechError: Something is wrong with the job; see `app.engine.errors`.
        """
        self.check_ready()
        plan = self._loaded().plan(job)
        with self._changed:
            if len(self._waiting) >= self._max_queue + (self._running is None):
                raise EngineBusy(
                    f"{len(self._waiting)} requests are waiting already",
                    retry_after_s=self._retry_after_s(),
                )
            ticket = Ticket(plan, self._request_timeout_s)
            self._waiting.append(ticket)
            self._changed.notify_all()
        return SpeechStream(ticket, self._abandon)

    async def wait_ready(self) -> None:
        """Wait until jobs are taken.

        Raises:
            EngineNotReady: It never will be; the message says why.
        """
        while self._state in {"new", "loading", "warming"}:
            await asyncio.sleep(0.02)
        self.check_ready()

    def check_ready(self) -> None:
        """Do nothing if jobs are taken.

        Raises:
            EngineNotReady: They are not; the message says what it waits for.
        """
        if self._state != "ready":
            raise self._not_ready()

    def check_healthy(self) -> None:
        """Do nothing if the process can live on.

        Raises:
            EngineNotReady: Only a restart helps; the message says why.
        """
        status = self.status
        if not status.healthy:
            why = status.error or f"the engine has not moved for {status.beat_age_s:.0f} s"
            raise EngineNotReady(f"not healthy: {why}", retry_after_s=30)

    async def drain(self, timeout_s: float) -> None:
        """Take no more jobs and wait until all are done, or the time is over."""
        if self._state == "ready":
            self._state = "draining"
        ends_s = monotonic() + timeout_s
        while (self._waiting or self._running) and monotonic() < ends_s:
            await asyncio.sleep(0.02)

    async def stop(self) -> None:
        """End the worker; jobs that are not done are cancelled."""
        with self._changed:
            if self._state != "failed":
                self._state = "stopped"
            for ticket in self._waiting:
                self._close(ticket, "cancelled")
            self._waiting.clear()
            if self._running is not None:
                self._running.abandoned = "cancelled"
            self._changed.notify_all()
        if self._worker is not None:
            await asyncio.to_thread(self._worker.join)

    async def __aenter__(self) -> Self:
        self.start()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.stop()

    def _loaded(self) -> Speaking:
        if self._speaking is None:
            raise self._not_ready()
        return self._speaking

    def _not_ready(self) -> EngineNotReady:
        why = self._error or f"waiting for {WAITS_FOR.get(self._state)}"
        return EngineNotReady(f"not ready: {why}", retry_after_s=5)

    def _retry_after_s(self) -> int:
        return max(1, min(60, math.ceil(self._job_s * len(self._waiting))))

    def _abandon(self, ticket: Ticket, reason: FinishReason) -> None:
        """Forget a job that nobody reads: at once if it waits, at its next frame if it runs."""
        with self._changed:
            ticket.abandoned = reason
            if ticket in self._waiting:
                self._waiting.remove(ticket)
                self._close(ticket, reason)

    def _close(
        self, ticket: Ticket, reason: FinishReason, error: SpeechError | None = None
    ) -> None:
        """Account for a job that ended without a result, and tell its reader if there is one."""
        self.finished[reason] += 1
        log.info("job %s: %s%s", ticket.plan.job.id, reason, f" ({error.code})" if error else "")
        ticket.give(error or self._not_ready())

    # What follows runs in the worker.

    def _enter(self, state: State) -> bool:
        """Move on, unless the engine was stopped meanwhile."""
        with self._changed:
            if self._state != "stopped":
                self._state = state
            return self._state == state

    def _work(self) -> None:
        try:
            speaking = self._load_and_warm_up()
        except Exception as error:
            self._error = str(error) or type(error).__name__
            self._enter("failed")
            # A ValueError is about the operator's files and says all; others are our mistakes.
            expected = isinstance(error, ValueError)
            log.error("the model cannot be used: %s", self._error, exc_info=not expected)
            return
        while speaking is not None and (ticket := self._next()) is not None:
            self._run(speaking, ticket)
            self._running = None

    def _load_and_warm_up(self) -> Speaking | None:
        """Return the model once it has spoken, or None if the engine was stopped meanwhile."""
        self._enter("loading")
        started_s = monotonic()
        speaking = self._load()
        self._enter("warming")
        params = SamplingParams(seed=0)
        job = SpeechJob("warm-up", _WARM_UP_TEXT, params, max_duration_s=_WARM_UP_S)
        for _ in speaking.speak(speaking.plan(job), queue_s=0.0, on_progress=lambda _: True):
            pass
        self._speaking = speaking
        self._beat_s = monotonic()
        if not self._enter("ready"):
            return None
        info = speaking.info
        log.info("ready: %s on %s in %.1f s", info.name, info.device, monotonic() - started_s)
        return speaking

    def _next(self) -> Ticket | None:
        """Wait for a job; None ends the worker."""
        with self._changed:
            while not self._waiting:
                if self._state == "stopped":
                    return None
                self._beat_s = monotonic()
                self._changed.wait(_IDLE_BEAT_S)
            self._running = self._waiting.popleft()
            self._beat_s = monotonic()
            return self._running

    def _run(self, speaking: Speaking, ticket: Ticket) -> None:
        """Speak one job; whatever happens to it happens to it alone."""

        def on_progress(progress: Progress) -> bool:
            self._beat_s = monotonic()
            ticket.progress = progress
            return ticket.abandoned is None

        if ticket.abandoned is not None:
            self._close(ticket, ticket.abandoned)
            return
        started_s = monotonic()
        queue_s = started_s - ticket.submitted_s
        try:
            for chunk in speaking.speak(ticket.plan, queue_s=queue_s, on_progress=on_progress):
                self._beat_s = monotonic()
                if ticket.abandoned is not None:
                    break
                if chunk.result is not None:
                    self._account(chunk.result, monotonic() - started_s)
                ticket.give(chunk)
                if chunk.result is not None:
                    return
        except SpeechError as error:
            self._close(ticket, "error", error)
        except Exception as error:
            log.exception("job %s broke", ticket.plan.job.id)
            message = f"the speech could not be made: {type(error).__name__}; the log says more"
            self._close(ticket, "error", GenerationFailed(message))
        else:
            self._close(ticket, ticket.abandoned or "cancelled")

    def _account(self, result: SpeechResult, job_s: float) -> None:
        self.finished[result.finish_reason] += 1
        # Old jobs fade: the machine may have become busier.
        self._job_s += 0.3 * (job_s - self._job_s)
        log.info(
            "job %s: %s, seed %d, %.2f s of audio, %.2f s in the queue, %.2f s of work",
            *(result.job_id, result.finish_reason, result.seed, result.audio_s),
            *(result.timings.queue_s, job_s),
        )

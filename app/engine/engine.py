"""Jobs in, audio chunks out: who runs, who waits, who is told to go away.

For now one job at a time, in one worker thread that also loads the model, so the event loop is
always free to answer. A second thread reads the texts, so that a text that cannot be spoken is
refused while others are spoken. Knows nothing of phonemes, codes or HTTP.

The life of an engine: new -> loading -> warming -> ready -> draining -> stopped, or failed.
"""

import asyncio
import logging
import math
import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from time import monotonic
from typing import Self

from app.engine.errors import EngineBusy, EngineNotReady
from app.engine.job import FinishReason, SpeechJob, SpeechResult
from app.engine.metrics import EngineMetrics
from app.engine.queue import TicketQueue
from app.engine.runner import Runner
from app.engine.speaking import ModelInfo, Replay, Speaking
from app.engine.status import WAITS_FOR, EngineStatus, State
from app.engine.ticket import SpeechStream, Ticket
from app.engine.voices import Voices
from samplers.params import SamplingParams

log = logging.getLogger(__name__)

_IDLE_BEAT_S = 5.0
_WARM_UP_TEXT = "Hello."
_WARM_UP_S = 0.2


class SpeechEngine:
    """Runs jobs one after another in a worker thread; reads their texts in another."""

    def __init__(
        self,
        load: Callable[[], Speaking],
        *,
        max_queue: int,
        request_timeout_s: float,
        stall_timeout_s: float = 30.0,
    ) -> None:
        """Make an engine that does nothing before `start`.

        Args:
            load: Makes the model; called once, in the worker.
            max_queue: Jobs that may wait or be read beside the one that runs.
            request_timeout_s: Longest time from `submit` to the last chunk, pauses left out.
            stall_timeout_s: Longest pause of a job whose reader does not take its sound.
        """
        self.metrics = EngineMetrics()
        self._load = load
        self._request_timeout_s = request_timeout_s
        self._speaking: Speaking | None = None
        self._state: State = "new"
        self._error: str | None = None
        self._queue = TicketQueue(max_queue)
        self._runner = Runner(self._queue, stall_timeout_s)
        self._moving = threading.Lock()  # held where the state changes
        # espeak-ng reads one text at a time in a process, so more threads would only wait.
        self._texts = ThreadPoolExecutor(1, thread_name_prefix="speech-text")
        self._worker: threading.Thread | None = None

    @property
    def status(self) -> EngineStatus:
        """How the engine is now."""
        state = self._state
        return EngineStatus(
            state=state,
            waits_for=WAITS_FOR.get(state),
            error=self._error,
            queued=len(self._queue),
            running=int(self._queue.running is not None),
            beat_age_s=monotonic() - self._runner.beat_s,
        )

    @property
    def finished(self) -> Counter[FinishReason]:
        """How many jobs ended for which reason."""
        return self._runner.finished

    @property
    def info(self) -> ModelInfo:
        """What the outside may know of the model.

        Raises:
            EngineNotReady: It is not loaded.
        """
        return self._loaded().info

    @property
    def voices(self) -> Voices:
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
        """Take a job, at once. Must be called on an event loop.

        Returns:
            An async iterator of its chunks; close it to cancel the job. What is wrong with the job
            is raised by its first step, as a SpeechError of `app.engine.errors`, as soon as the
            text is read and whoever else may wait.

        Raises:
            EngineNotReady: It is not running.
            EngineBusy: As many jobs wait as may.
        """
        ticket, speaking = self._admit(job.id), self._loaded()
        self._texts.submit(self._runner.read, speaking, ticket, job)
        return SpeechStream(ticket, self._abandon)

    def replay(self, job_id: str, result: SpeechResult) -> SpeechStream:
        """Make a speech's sound once more, from its codes; it takes its turn like any job.

        Args:
            job_id: Of this replay.
            result: What the loaded model once spoke.

        Returns:
            As `submit`; the same samples.

        Raises:
            EngineNotReady: It is not running.
            EngineBusy: As many jobs wait as may.
        """
        ticket = self._admit(job_id)
        self._queue.line_up(ticket, Replay(result))
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
        while (len(self._queue) or self._queue.running) and monotonic() < ends_s:
            await asyncio.sleep(0.02)

    async def stop(self) -> None:
        """End the worker; jobs that are not done are cancelled."""
        with self._moving:
            if self._state != "failed":
                self._state = "stopped"
        for ticket in self._queue.close():
            self._runner.close(ticket, "cancelled")
        if (running := self._queue.running) is not None:
            running.abandon("cancelled")
        self._texts.shutdown(wait=False, cancel_futures=True)
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

    def _admit(self, job_id: str) -> Ticket:
        """Give a job a place in the queue.

        Raises:
            EngineNotReady: It is not running.
            EngineBusy: There is none.
        """
        self.check_ready()
        ticket = Ticket(job_id, self._request_timeout_s)
        if not self._queue.admit(ticket):
            waiting = len(self._queue)
            raise EngineBusy(
                f"{waiting} requests are waiting already",
                retry_after_s=max(1, min(60, math.ceil(self._runner.job_s * waiting))),
            )
        return ticket

    def _abandon(self, ticket: Ticket, reason: FinishReason) -> None:
        """Forget a job that nobody reads: at once if it waits, at its next frame if it runs."""
        ticket.abandon(reason)
        if self._queue.leave(ticket):
            self._runner.close(ticket, reason)

    # What follows runs in the worker.

    def _enter(self, state: State) -> bool:
        """Move on, unless the engine was stopped meanwhile."""
        with self._moving:
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
        if speaking is None:
            return
        while (ticket := self._queue.take(self._runner.beat, _IDLE_BEAT_S)) is not None:
            self._runner.run(speaking, ticket)

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
        self._runner.beat()
        if not self._enter("ready"):
            return None
        info = speaking.info
        log.info("ready: %s on %s in %.1f s", info.name, info.device, monotonic() - started_s)
        return speaking

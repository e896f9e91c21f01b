"""Jobs in, audio chunks out: who waits, who is told to go away, and the life of it all.

Three threads beside the event loop: one reads texts (`app.engine.serving.text_worker`), one draws
level 0 of all jobs together (`app.engine.serving.scheduler`), one makes sound of it
(`app.engine.serving.sound_worker`). Knows nothing of phonemes, codes or HTTP.

The life of an engine: new -> loading -> warming -> ready -> draining -> stopped, or failed.
"""

import asyncio
import logging
import math
import threading
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from time import monotonic
from typing import Self

from app.engine.errors import EngineBusy, EngineNotReady
from app.engine.interface import Backend, GoldenResult, ModelInfo, Plan, Replay
from app.engine.job import FinishReason, SpeechJob, SpeechResult
from app.engine.serving.accounts import Accounts
from app.engine.serving.capacity import Capacity
from app.engine.serving.metrics import EngineMetrics
from app.engine.serving.queue import TicketQueue
from app.engine.serving.scheduler import Scheduler
from app.engine.serving.sound_worker import SoundWorker
from app.engine.serving.status import WAITS_FOR, EngineStatus, State
from app.engine.serving.supervisor import Supervisor
from app.engine.serving.text_worker import TextWorker
from app.engine.serving.ticket import SpeechStream, Ticket
from app.engine.voices import Voices

log = logging.getLogger(__name__)

USUAL_S = 5.0
"""Seconds of speech of a job that nothing is known of."""

DEFAULT_SLOTS = 20


class SpeechEngine:
    """Runs jobs side by side.

    Attributes:
        metrics: What it counts.
    """

    def __init__(
        self,
        load: Callable[[], Backend],
        *,
        max_queue: int,
        request_timeout_s: float,
        stall_timeout_s: float = 30.0,
        slots: int = DEFAULT_SLOTS,
        unload_after_s: float = 0.0,
        check_golden: bool = False,
    ) -> None:
        """Make an engine that does nothing before `start`.

        Args:
            load: Makes the model; called once, in the worker.
            max_queue: Jobs that may wait or be read beside those that find room at once.
            request_timeout_s: Longest time from `submit` to the last chunk, pauses left out.
            stall_timeout_s: Longest pause of a job whose reader does not take its sound.
            slots: Rows of the batch that draws level 0; a job states how many it takes.
            unload_after_s: After how long without a job the model leaves its device; 0: never.
            check_golden: Whether the model's golden requests are spoken before all others.
        """
        self.metrics = EngineMetrics()
        self._load = load
        self._request_timeout_s = request_timeout_s
        self._slots, self._unload_after_s = slots, unload_after_s
        self._backend: Backend | None = None
        self._deterministic: bool | None = None
        self._check_golden = check_golden
        self._golden: GoldenResult | None = None
        self._state: State = "new"
        self._error: str | None = None
        self._accounts = Accounts(self.metrics)
        self._queue = TicketQueue(max_queue)
        self._capacity = Capacity()
        self._sound_worker = SoundWorker(
            self._accounts,
            self._capacity,
            on_end=self._queue.done,
            stall_timeout_s=stall_timeout_s,
        )
        self._scheduler = Scheduler(
            self._queue, self._sound_worker, self._capacity, self.metrics, slots=slots
        )
        self._supervisor = Supervisor(self.metrics, on_hopeless=self._fail)
        self._moving = threading.Lock()  # held where the state changes
        self._texts = TextWorker(self._queue, self._accounts, self._forecast, slots=slots)
        self._worker: threading.Thread | None = None
        self._on_failed: Callable[[], None] = lambda: None
        self.metrics.queued.set_function(lambda: len(self._queue))
        self.metrics.running.set_function(lambda: len(self._queue.running))

    @property
    def status(self) -> EngineStatus:
        """How the engine is now."""
        state = self._state
        beat_s = min(self._scheduler.beat_s, self._sound_worker.beat_s)
        return EngineStatus(
            state=state,
            waits_for=WAITS_FOR.get(state),
            error=self._error,
            queued=len(self._queue),
            running=len(self._queue.running),
            beat_age_s=monotonic() - beat_s,
            slots=self._slots,
            used_slots=self._slots - self._queue.free_rows if state in {"ready", "draining"} else 0,
            deterministic=self._deterministic,
            golden=self._golden,
            streams=self._capacity.streams,
        )

    def _forecast(self, ticket: Ticket, plan: Plan) -> None:
        """Note on a ticket how long it will likely be, and when its first sound comes."""
        phonemes = sum(len(utterance.phonemes) for utterance in plan.utterances)
        pauses_s = sum(utterance.pause_after_s or 0.0 for utterance in plan.utterances)
        playback = ticket.playback
        playback.expected_s = self._capacity.speech_s(phonemes) + pauses_s
        waited_s = monotonic() - playback.submitted_s
        playback.expected_first_s = waited_s + self.first_audio_s(playback.expected_s)

    def first_audio_s(self, speech_s: float = USUAL_S) -> float:
        """Return the seconds until the first sound of a job of that length that lines up now."""
        ahead_s = [one.playback.expected_s for one in self._queue.waiting]
        return self._sound_worker.wait_s(speech_s, ahead_s) + self._capacity.start_s

    @property
    def finished(self) -> Counter[FinishReason]:
        """How many jobs ended for which reason."""
        return self._accounts.finished

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
        self._worker = threading.Thread(target=self._work, name="speech-level-0", daemon=True)
        self._worker.start()

    def when_failed(self, told: Callable[[], None]) -> None:
        """Have somebody told, in a worker, that only a restart of the process helps."""
        self._on_failed = told

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
        ticket, backend = self._admit(job.id, job.asker), self._loaded()
        self._texts.read(backend, ticket, job)
        return SpeechStream(ticket, self._abandon)

    def replay(self, job_id: str, result: SpeechResult, asker: str = "") -> SpeechStream:
        """Make a speech's sound once more, from its codes; it takes no rows, and waits for none.

        Args:
            job_id: Of this replay.
            result: What the loaded model once spoke.
            asker: Who asks.

        Returns:
            As `submit`; the same samples.

        Raises:
            EngineNotReady: It is not running.
            EngineBusy: As many jobs wait as may.
        """
        ticket = self._admit(job_id, asker)
        self._queue.enqueue(ticket, Replay(result))
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
        """End the workers; jobs that are not done are cancelled."""
        with self._moving:
            if self._state != "failed":
                self._state = "stopped"
        self._close()
        self._texts.close()
        if self._worker is not None:
            await asyncio.to_thread(self._worker.join)

    async def __aenter__(self) -> Self:
        self.start()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.stop()

    def _loaded(self) -> Backend:
        if self._backend is None:
            raise self._not_ready()
        return self._backend

    def _not_ready(self) -> EngineNotReady:
        why = self._error or f"waiting for {WAITS_FOR.get(self._state)}"
        return EngineNotReady(f"not ready: {why}", retry_after_s=5)

    def _admit(self, job_id: str, asker: str) -> Ticket:
        """Give a job a place in the queue.

        Raises:
            EngineNotReady: It is not running.
            EngineBusy: There is none.
        """
        self.check_ready()
        ticket = Ticket(job_id, self._request_timeout_s, self._wake, asker=asker)
        if not self._queue.admit(ticket):
            waiting = len(self._queue)
            wait_s = self.first_audio_s()
            raise EngineBusy(
                f"{waiting} requests are waiting, and no more may, or no more of yours",
                retry_after_s=max(1, min(60, math.ceil(wait_s))),
            )
        return ticket

    def _abandon(self, ticket: Ticket, reason: FinishReason) -> None:
        """Forget a job that nobody reads: at once if it waits, at its next frame if it runs."""
        ticket.abandon(reason)
        if self._queue.remove(ticket):
            self._accounts.ended(ticket, reason)

    def _wake(self) -> None:
        self._queue.wake()
        self._sound_worker.wake()

    def _close(self) -> None:
        """Let nobody in, and everybody go."""
        for ticket in self._queue.close():
            self._accounts.ended(ticket, "cancelled")
        for ticket in self._queue.running:
            ticket.abandon("cancelled")
        self._sound_worker.close()

    # What follows runs in the workers.

    def _enter(self, state: State) -> bool:
        """Move on, unless the engine was stopped meanwhile."""
        with self._moving:
            if self._state != "stopped":
                self._state = state
            return self._state == state

    def _fail(self, why: str) -> None:
        """Give up: only a restart of the process helps."""
        self._error = why
        self._enter("failed")
        self._close()
        self._on_failed()

    def _work(self) -> None:
        """Load, and then draw until stopped, with another thread that makes the sound."""
        try:
            backend = self._load_and_warm_up()
        except Exception as error:
            # A ValueError is about the operator's files and says all; others are our mistakes.
            expected = isinstance(error, ValueError)
            why = str(error) or type(error).__name__
            log.error("the model cannot be used: %s", why, exc_info=not expected)
            self._fail(why)
            return
        if backend is None:
            return

        rate_hz, idle_after_s = backend.info.frame_rate_hz, self._unload_after_s or math.inf

        def draw() -> None:
            while not self._queue.closed:
                with closing(backend.batch(self._slots)) as batch:
                    self._scheduler.run(batch, rate_hz, idle_after_s)
                if not self._queue.closed:
                    log.info(
                        "nothing was asked for %g s: the model leaves the device", idle_after_s
                    )
                    backend.unload(lambda: self._queue.empty)
                    self._scheduler.sleep()

        def make_sound() -> None:
            backend.prepare_sound()
            with backend.sound_context():
                self._sound_worker.run(backend)

        def sound() -> None:
            self._supervisor.run("sound", make_sound, self._sound_worker.fail_all)

        sound_thread = threading.Thread(target=sound, name="speech-sound", daemon=True)
        sound_thread.start()
        self._supervisor.run("level 0", draw, self._scheduler.fail_all)
        sound_thread.join()
        backend.close()

    def _load_and_warm_up(self) -> Backend | None:
        """Return the model once it has spoken, or None if the engine was stopped meanwhile."""
        self._enter("loading")
        log.info("loading the model")
        started_s = monotonic()
        backend = self._load()
        self._enter("warming")
        backend.prepare_sound()
        self._deterministic = backend.check_deterministic()
        if not self._deterministic:
            log.warning("a job among others does not have the codes that it has alone")
        backend.measure(self._capacity)
        if self._check_golden:
            self._golden = backend.check_golden()
            if self._golden is not None and self._golden.different:
                log.warning(
                    "%d of %d golden requests have other codes on this machine than those stored",
                    self._golden.different,
                    self._golden.spoken,
                )
        self._backend = backend
        self._queue.free_rows = self._slots
        self._scheduler.beat_s = self._sound_worker.beat_s = monotonic()
        if not self._enter("ready"):
            return None
        info = backend.info
        log.info("ready: %s on %s in %.1f s", info.name, info.device, monotonic() - started_s)
        return backend

"""The engine: jobs in, audio chunks out.

Three threads besides the event loop: one converts texts to phonemes
(`app.engine.serving.text_worker`), one draws level 0 of all jobs together
(`app.engine.serving.scheduler`), one makes the audio (`app.engine.serving.sound_worker`). Knows
nothing of phonemes, codes or HTTP.
"""

import asyncio
import math
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from time import monotonic
from typing import Any, Self

from app.engine.admission import Capacity, longest_throttle_s
from app.engine.errors import EngineBusy, EngineNotReady
from app.engine.interface import Backend, ModelInfo, Reading
from app.engine.job import Codes, FinishReason, SpeechJob, SpeechResult
from app.engine.serving.fairness import Places
from app.engine.serving.lifecycle import Lifecycle
from app.engine.serving.metrics import EngineMetrics
from app.engine.serving.options import EngineOptions
from app.engine.serving.outcomes import Outcomes
from app.engine.serving.running import JobQueue, RunningJob, SpeechStream
from app.engine.serving.scheduler import Scheduler
from app.engine.serving.sound_worker import SoundWorker
from app.engine.serving.status import WAITS_FOR, EngineStatus
from app.engine.serving.text_worker import TextWorker
from app.engine.voices import Voices
from samplers.knobs.params import SamplingParams

SWITCH_INTERVAL_S = 0.0005
"""How long a thread that reads a text or renders audio may keep the interpreter's lock while
another waits for it. A step of level 0 releases the lock several times, and with Python's default
of 5 ms each of them could cost that."""

_MOST_READINGS = 10
"""Texts that may wait to be read without being spoken: each takes up to half a second."""


class SpeechEngine:
    """Runs jobs side by side, on one loaded model.

    Args:
        load: Returns the model; called once, in the level-0 thread.
    """

    def __init__(self, load: Callable[[], Backend], options: EngineOptions) -> None:
        self.metrics, self._options = EngineMetrics(), options
        slots = options.slots
        self._outcomes = Outcomes(self.metrics)
        self._queue = JobQueue(options.max_queue)
        self._capacity = Capacity(throttle_s=longest_throttle_s())
        self._sound_worker = SoundWorker(
            self._outcomes,
            self._capacity,
            on_end=self._queue.done,
            stall_timeout_s=options.stall_timeout_s,
        )
        self._scheduler = Scheduler(
            self._queue, self._sound_worker, self._capacity, self.metrics, slots=slots
        )
        self._text_worker = TextWorker(self._queue, self._outcomes, self._capacity, slots=slots)
        self._lifecycle = Lifecycle(
            load, self._scheduler, self._sound_worker, self.metrics, options
        )
        self._readings = Places(_MOST_READINGS)
        self._lifecycle.on_close = self._close
        self.metrics.queued.set_function(lambda: len(self._queue))
        self.metrics.running.set_function(lambda: len(self._queue.running))

    @property
    def status(self) -> EngineStatus:
        """The state of the engine now."""
        life, state = self._lifecycle, self._lifecycle.state
        slots = self._options.slots
        beat_s = min(self._scheduler.beat_s, self._sound_worker.beat_s)
        return EngineStatus(
            state=state,
            waits_for=WAITS_FOR.get(state),
            error=life.error,
            queued=len(self._queue),
            running=len(self._queue.running),
            beat_age_s=monotonic() - beat_s,
            slots=slots,
            used_slots=slots - self._queue.free_rows if state in {"ready", "draining"} else 0,
            deterministic=life.deterministic,
            golden=life.golden,
            streams=self._capacity.streams,
        )

    @property
    def finished(self) -> Counter[FinishReason]:
        """How many jobs ended for which reason."""
        return self._outcomes.finished

    @property
    def info(self) -> ModelInfo:
        """What the outside may know of the model."""
        return self._lifecycle.backend.info

    @property
    def voices(self) -> Voices:
        """The voices that the model can speak as."""
        return self._lifecycle.backend.voices

    @property
    def presets(self) -> Mapping[str, SamplingParams]:
        """Name of each preset -> every knob as the loaded model would use it, the seed None."""
        return self._lifecycle.backend.presets

    def start(self) -> None:
        """Start the workers, which load the model; `wait_ready` waits for that."""
        sys.setswitchinterval(min(sys.getswitchinterval(), SWITCH_INTERVAL_S))
        self._lifecycle.thread.start()

    def when_failed(self, callback: Callable[[], None]) -> None:
        """Have a function called, in a worker, once only a restart of the process helps."""
        self._lifecycle.on_failed = callback

    def submit(self, job: SpeechJob) -> SpeechStream:
        """Queue a job, without waiting. Must be called on an event loop.

        Returns:
            An async iterator of its chunks; closing it cancels the job. An invalid job raises its
            SpeechError from the first step of the iterator, once its text was read, even while
            other jobs wait.
        """
        running = self._admit(job.id, client=job.client, played=job.played)
        self._text_worker.read(self._lifecycle.backend, running, job)
        return SpeechStream(running, self._abandon)

    async def read(self, job: SpeechJob) -> Reading:
        """Convert the text of a job to phonemes, without speaking it.

        Raises:
            EngineBusy: Too many texts wait to be read, or too many of the client's.
        """
        self.check_ready()
        if not self._readings.free(job.client):
            raise EngineBusy(
                "too many texts wait to be read, or too many of yours", retry_after_s=1
            )
        with self._readings.held(job.client):
            backend = self._lifecycle.backend
            return await asyncio.wrap_future(self._text_worker.preview(backend, job))

    async def encode(self, job_id: str, content: bytes, client: str = "") -> Codes:
        """Return the codes ``[T, K]`` of a recording, an audio file.

        Raises:
            EngineBusy: Too much waits to be read, or too much of the client's.
        """
        self.check_ready()
        if not self._readings.free(client):
            raise EngineBusy("too much waits to be read, or too much of yours", retry_after_s=1)
        with self._readings.held(client):
            backend = self._lifecycle.backend
            return await asyncio.wrap_future(
                self._text_worker.encode(backend, job_id, content, client)
            )

    def replay(self, job_id: str, result: SpeechResult, client: str = "") -> SpeechStream:
        """Make the audio of a speech once more, from its codes; takes no rows and waits for none.

        Returns:
            As `submit`; the same samples.
        """
        running = self._admit(job_id, client=client, played=False, replayed=result)
        self._queue.enqueue(running)
        return SpeechStream(running, self._abandon)

    def first_audio_s(self) -> float:
        """Return about how many seconds the first audio of a job that is queued now takes."""
        jobs = len(self._queue) + len(self._queue.running) + 1
        return self._capacity.first_audio_s(jobs)

    async def wait_ready(self) -> None:
        """Wait until jobs are accepted."""
        await self._lifecycle.wait_ready()

    def check_ready(self) -> None:
        """Do nothing if jobs are accepted."""
        self._lifecycle.check_ready()

    def check_healthy(self) -> None:
        """Do nothing if the process need not be restarted.

        Raises:
            EngineNotReady: Only a restart helps; the message says why.
        """
        status = self.status
        if not status.healthy:
            why = status.error or f"the engine has not moved for {status.beat_age_s:.0f} s"
            raise EngineNotReady(f"not healthy: {why}", retry_after_s=30)

    async def drain(self, timeout_s: float) -> None:
        """Accept no more jobs and wait until all have ended, at most ``timeout_s`` seconds."""
        self._lifecycle.drain()
        ends_s = monotonic() + timeout_s
        while (len(self._queue) or self._queue.running) and monotonic() < ends_s:
            await asyncio.sleep(0.02)

    async def stop(self) -> None:
        """End the workers; jobs that have not ended are cancelled."""
        self._text_worker.close()
        await self._lifecycle.stop()

    async def __aenter__(self) -> Self:
        self.start()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.stop()

    def _admit(self, job_id: str, **given: Any) -> RunningJob:
        """Give a job a place in the queue; see `RunningJob` for what is given."""
        self.check_ready()
        job = RunningJob(job_id, self._options.request_timeout_s, self._wake, **given)
        if not self._queue.admit(job):
            raise EngineBusy(
                f"{len(self._queue)} requests are waiting, and no more may, or no more of yours",
                retry_after_s=max(1, min(60, math.ceil(self.first_audio_s()))),
            )
        return job

    def _abandon(self, job: RunningJob, reason: FinishReason) -> None:
        """End a job that nobody reads: at once if it waits, at its next frame if it runs."""
        job.abandon(reason)
        if self._queue.remove(job):
            self._outcomes.ended(job, reason)

    def _wake(self) -> None:
        self._queue.wake()
        self._sound_worker.wake()

    def _close(self) -> None:
        """Accept no more jobs, and cancel all there are."""
        for job in self._queue.close():
            self._outcomes.ended(job, "cancelled")
        for job in self._queue.running:
            job.abandon("cancelled")
        self._sound_worker.close()

"""The engine: jobs in, audio chunks out.

Three threads besides the event loop: one converts texts to phonemes
(`app.engine.serving.text_worker`), one loads the model and samples level 0 of all jobs together
(`app.engine.serving.scheduler`), one makes the audio (`app.engine.serving.audio_worker`). Knows
nothing of phonemes, codes or HTTP.

new -> loading -> warming -> ready -> draining -> stopped, or failed.
"""

import asyncio
import logging
import math
import sys
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from app.engine.admission.cgroups import longest_throttle_s
from app.engine.admission.cost_model import CostModel
from app.engine.admission.quota import ClientQuota
from app.engine.admission.text_pace import TextPace
from app.engine.core import SpeechJob, SpeechResult
from app.engine.errors import EngineBusy, EngineNotReady
from app.engine.interface import GoldenResult, ModelInfo, Reading, RunningBatch
from app.engine.model import LoadedModel
from app.engine.recording_turns import RecordingTurns
from app.engine.results import Codes, FinishReason
from app.engine.serving.audio_worker import AudioWorker
from app.engine.serving.fair_queue import OnPiece
from app.engine.serving.job_queue import JobQueue
from app.engine.serving.lifecycle import Lifecycle
from app.engine.serving.metrics import EngineMetrics
from app.engine.serving.outcomes import JobLog
from app.engine.serving.running import JobHandle, SpeechStream
from app.engine.serving.scheduler import Scheduler
from app.engine.serving.status import WAITS_FOR, EngineStatus
from app.engine.serving.supervisor import Supervisor
from app.engine.serving.text_worker import TextWorker
from app.engine.voices import Voices
from models.voices.recording import Recording
from samplers.knobs.params import SamplingParams

if TYPE_CHECKING:
    from app.settings import Settings  # needs pydantic-settings, absent where torch is alone

log = logging.getLogger(__name__)

SWITCH_INTERVAL_S = 0.0005
"""How long a thread that reads a text or renders audio may keep the interpreter's lock while
another waits for it. A step of level 0 releases the lock several times, and with Python's default
of 5 ms each of them could cost that."""

_MOST_READINGS = 10
"""Texts that may wait to be read without being spoken: each takes up to half a second."""


_AR = "level 0"
_AUDIO = "sound"


class _Checked(NamedTuple):
    """What the warm-up has found; None before."""

    deterministic: bool | None = None  # of `CheckPart.check_deterministic`
    golden: GoldenResult | None = None  # of `CheckPart.check_golden`


def _mean(seconds: Sequence[float]) -> float:
    return sum(seconds) / len(seconds) if seconds else 0.0


class SpeechEngine:
    """Runs jobs side by side, on one loaded model, that ``load`` returns in a worker."""

    def __init__(self, load: Callable[[], LoadedModel], settings: "Settings") -> None:
        self._settings = settings
        self.metrics = EngineMetrics()
        slots = settings.slots
        self._outcomes = JobLog(self.metrics)
        self._queue = JobQueue(settings.max_queue)
        self._capacity = CostModel(throttle_s=longest_throttle_s())
        self._audio_worker = AudioWorker(
            self._outcomes,
            self._capacity,
            on_end=self._queue.done,
        )
        self._scheduler = Scheduler(
            self._queue, self._audio_worker, self._capacity, self.metrics, slots=slots
        )
        self._text_worker = TextWorker(self._queue, self._outcomes, self._capacity, slots=slots)
        self._recordings = RecordingTurns()
        self._supervisor = Supervisor(self.metrics, on_give_up=self._fail)
        self._readings = ClientQuota(_MOST_READINGS)
        self._loaded: LoadedModel | None = None
        self.lifecycle = Lifecycle(_AR, _AUDIO)
        self._checked = _Checked()
        self._thread = threading.Thread(
            target=self._work, args=(load,), name="speech-ar", daemon=True
        )
        self.metrics.queued.set_function(lambda: len(self._queue))
        self.metrics.running.set_function(lambda: len(self._queue.running))

    @property
    def status(self) -> EngineStatus:
        """The state of the engine now."""
        state = self.lifecycle.state
        slots = self._settings.slots
        now_s = monotonic()
        beats_s = {
            "level_0": now_s - self._scheduler.beat_s,
            "sound": now_s - self._audio_worker.beat_s,
            "text": self._text_worker.silent_s,
        }
        return EngineStatus(
            state=state,
            waits_for=WAITS_FOR.get(state),
            error=self.lifecycle.error,
            queued=len(self._queue),
            running=len(self._queue.running),
            beat_age_s=max(beats_s.values()),
            # Speech goes on without recordings, so they are no reason for a restart.
            beats_s=beats_s | {"recordings": self._recordings.silent_s},
            slots=slots,
            used_slots=slots - self._queue.free_rows if state in {"ready", "draining"} else 0,
            deterministic=self._checked.deterministic,
            golden=self._checked.golden,
            streams=self._capacity.streams,
        )

    @property
    def finished(self) -> Counter[FinishReason]:
        """How many jobs ended for which reason."""
        return self._outcomes.finished

    @property
    def info(self) -> ModelInfo:
        """What the outside may know of the model."""
        return self._model.info

    @property
    def voices(self) -> Voices:
        """The voices that the model can speak as."""
        return self._model.planner.voices

    @property
    def presets(self) -> Mapping[str, SamplingParams]:
        """Name of each preset -> every knob as the loaded model would use it, the seed None."""
        return self._model.planner.presets

    def start(self) -> None:
        """Start the workers, which load the model; `Lifecycle.wait_ready` waits for that."""
        sys.setswitchinterval(min(sys.getswitchinterval(), SWITCH_INTERVAL_S))
        self._thread.start()

    def submit(self, job: SpeechJob) -> SpeechStream:
        """Queue a job, without waiting; return its chunks. Must be called on an event loop.

        An invalid job raises its SpeechError once its text was read, even while other jobs wait.
        """
        return self._submit(job)

    def begin(self, job: SpeechJob, pace: TextPace, lead_until_s: float) -> SpeechStream:
        """Queue a job of a text whose end is not known, as `submit`; `read_more` gives the rest.

        ``pace`` is how fast it is written. Sound before it is played until ``lead_until_s``, by
        `time.monotonic`.
        """
        return self._submit(job, pace, lead_until_s)

    def _submit(
        self, job: SpeechJob, pace: TextPace | None = None, lead_until_s: float = 0.0
    ) -> SpeechStream:
        expected_s = self._capacity.speech_s(len(job.text))
        self._check_wait(job.client, played=job.played)
        running = self._admit(job.id, client=job.client, played=job.played)
        running.pace = pace
        running.lead_until_s = lead_until_s
        running.playback.expected_s = expected_s  # until its text is read
        self._text_worker.read(self._model.planner, running, job)
        return running

    def read_more(self, stream: SpeechStream, job: SpeechJob) -> None:
        """Give a job of `begin` more of its text: all that there is, and whether that is all."""
        if isinstance(stream, JobHandle):
            self._text_worker.read_more(self._model.planner, stream, job)

    async def read(self, job: SpeechJob) -> Reading:
        """Convert the text of a job to phonemes, without speaking it.

        Raises EngineBusy if too many texts wait to be read, or too many of the client's.
        """
        self.lifecycle.check_ready()
        if not self._readings.free(job.client):
            raise EngineBusy(
                "too many texts wait to be read, or too many of yours", retry_after_s=1
            )
        with self._readings.held(job.client):
            reading = self._text_worker.preview(self._model.planner, job)
            return await asyncio.wrap_future(reading)

    async def encode(self, job_id: str, content: bytes, client: str = "") -> Codes:
        """Return the codes ``[T, K]`` of an audio file; raises EngineBusy as `read`."""
        self.lifecycle.check_ready()
        if not self._readings.free(client):
            await self._recordings.refuse()
            raise EngineBusy("too much waits to be read, or too much of yours", retry_after_s=1)
        with self._readings.held(client):
            encoder = self._model.encoder

            def encode(_: OnPiece) -> Codes:
                return encoder.encode(encoder.read_audio(content))

            return await self._recordings.result(job_id, client, encode)

    async def recording(
        self, job_id: str, content: bytes, client: str = "", start_s: float | None = None
    ) -> Recording:
        """Return what an audio file has, in which the caller limits how many wait at once."""
        encoder = self._model.encoder
        return await self._recordings.result(
            job_id, client, lambda _: encoder.read_audio(content, start_s)
        )

    def replay(self, job_id: str, result: SpeechResult, client: str = "") -> SpeechStream:
        """Make the audio of a speech once more, the same samples, from its codes; as `submit`.

        It takes no rows and waits for none.
        """
        running = self._admit(job_id, client=client, played=False, replayed=result)
        self._queue.enqueue(running)
        return running

    def first_audio_s(self) -> float:
        """Return about how many seconds the first audio of a job that is queued now takes."""
        ahead = self._queue.left_s
        return self._capacity.first_audio_s(len(ahead) + 1, _mean(ahead))

    def _check_wait(self, client: str, *, played: bool) -> None:
        """Raise EngineBusy if a job of a client is expected to wait for too long."""
        # One that is sent whole begins as soon as rows are free, as does the first of a client.
        if self._queue.rows_left_for(client) and (not played or not self._queue.has(client)):
            return
        ahead = self._queue.left_s
        wait_s = self._capacity.wait_s(len(ahead) + 1, _mean(ahead))
        if wait_s > self._settings.max_wait_s:
            raise EngineBusy(
                f"it would wait for some {wait_s:.0f} s, and may wait for"
                f" {self._settings.max_wait_s:g}",
                retry_after_s=max(1, min(60, math.ceil(wait_s - self._settings.max_wait_s))),
            )

    def check_healthy(self) -> None:
        """Raise EngineNotReady if only a restart of the process helps; the message says why."""
        status = self.status
        if not status.healthy:
            why = status.error or f"the engine has not moved for {status.beat_age_s:.0f} s"
            raise EngineNotReady(f"not healthy: {why}", retry_after_s=30)

    async def drain(self, timeout_s: float) -> None:
        """Accept no more jobs and wait until all have ended, at most ``timeout_s`` seconds."""
        self.lifecycle.drain()
        ends_s = monotonic() + timeout_s
        while (len(self._queue) or self._queue.running) and monotonic() < ends_s:
            await asyncio.sleep(0.02)

    async def stop(self) -> None:
        """End the workers; jobs that have not ended are cancelled."""
        self._text_worker.close()
        self._recordings.close()
        self.lifecycle.stop()
        self._close()
        if self._thread.ident is not None:
            await asyncio.to_thread(self._thread.join)

    async def __aenter__(self) -> Self:
        self.start()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.stop()

    @property
    def _model(self) -> LoadedModel:
        if self._loaded is None:
            raise self.lifecycle.not_ready()
        return self._loaded

    def _admit(self, job_id: str, **given: Any) -> JobHandle:
        """Give a job a place in the queue; see `JobHandle` for what is given."""
        self.lifecycle.check_ready()
        job = JobHandle(job_id, self._settings.request_timeout_s, self._wake, **given)
        if not self._queue.admit(job):
            raise EngineBusy(
                f"{len(self._queue)} requests are waiting, and no more may, or no more of yours",
                retry_after_s=max(1, min(60, math.ceil(self.first_audio_s()))),
            )
        return job

    def _wake(self, job: JobHandle) -> None:
        """End a job that was given up: at once if it waits, at its next frame if it runs."""
        if job.abandoned is not None and self._queue.remove(job):
            self._outcomes.ended(job, job.abandoned)
        self._queue.wake()
        self._audio_worker.wake()

    def _close(self) -> None:
        """Accept no more jobs, and cancel all there are."""
        for job in self._queue.close():
            self._outcomes.ended(job, "cancelled")
        for job in self._queue.running:
            job.abandon("cancelled")
        self._audio_worker.close()

    # What follows runs in the workers.

    def _fail(self, why: str) -> None:
        """Enter the state `failed`, which only a restart of the process ends."""
        self.lifecycle.fail(why)
        self._close()
        self.lifecycle.tell_failed()

    def _work(self, load: Callable[[], LoadedModel]) -> None:
        """Load the model, and run level 0 here and the audio worker in a thread until stopped."""
        try:
            model, batch = self._load_and_warm_up(load)
        except Exception as error:
            # A ValueError is about the operator's files and says all; others are our mistakes.
            expected = isinstance(error, ValueError)
            why = str(error) or type(error).__name__
            log.error("the model cannot be used: %s", why, exc_info=not expected)
            self._fail(why)
            return
        if self.lifecycle.state == "stopped":
            return

        batches = [batch]

        def run_ar() -> None:
            self._run_ar(model, batches)

        def run_audio() -> None:
            with model.audio.sound_context():
                model.audio.prepare_audio()
                self._warmed(_AUDIO, model)
                self._audio_worker.run(model.audio)

        def supervise_audio() -> None:
            self._supervisor.run(_AUDIO, run_audio, self._audio_worker.fail_all)

        sound = threading.Thread(target=supervise_audio, name="speech-audio", daemon=True)
        sound.start()
        self._supervisor.run(_AR, run_ar, self._scheduler.fail_all)
        sound.join()
        model.close()

    def _run_ar(self, model: LoadedModel, batches: list[RunningBatch]) -> None:
        """Run the scheduler, first in a batch that is there; the idle model leaves its device."""
        idle_after_s = self._settings.unload_after_s or math.inf
        while not self._queue.closed:
            with closing(
                batches.pop() if batches else model.ar.batch(self._settings.slots)
            ) as batch:
                self._warmed(_AR, model)
                rate_hz = model.info.frame_rate_hz
                self._scheduler.run(batch, rate_hz, idle_after_s, model.memory.fits)
            if not self._queue.closed:
                log.info("no job for %g s: the model leaves its device", idle_after_s)
                model.memory.unload(lambda: self._queue.empty)
                self._scheduler.sleep()

    def _load_and_warm_up(
        self, load: Callable[[], LoadedModel]
    ) -> tuple[LoadedModel, RunningBatch]:
        """Return the model once it has spoken, and a batch."""
        self.lifecycle.enter("loading")
        log.info("loading the model")
        model = load()
        self.lifecycle.enter("warming")
        model.audio.prepare_audio()
        deterministic = model.checks.check_deterministic()
        self._checked = _Checked(deterministic)
        if not deterministic:
            log.warning("a job has other codes among others than alone")
        batch = model.checks.measure(self._capacity, self._settings.slots)
        if self._settings.check_golden:
            golden = model.checks.check_golden()
            self._checked = _Checked(deterministic, golden)
            if golden is not None and golden.different:
                log.warning(
                    "%d of %d golden requests have other codes on this machine than those stored",
                    golden.different,
                    golden.spoken,
                )
        return model, batch

    def _warmed(self, worker: str, model: LoadedModel) -> None:
        """Note that a worker has all that it needs; when both have, jobs are accepted."""
        if not self.lifecycle.warmed(worker):
            return
        self._loaded = model
        for name in model.memory.cache_bytes:
            count = partial(lambda of: model.memory.cache_bytes.get(of, 0), name)
            self.metrics.cache_bytes.labels(name).set_function(count)
        self._queue.free_rows = self._settings.slots
        self._scheduler.beat_s = self._audio_worker.beat_s = monotonic()
        if self.lifecycle.enter("ready"):
            info = model.info
            took_s = monotonic() - self.lifecycle.began_s
            log.info("ready: %s on %s in %.1f s", info.name, info.device, took_s)

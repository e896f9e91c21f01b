"""What a model does before it serves: it speaks, is measured, and compares its codes."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from time import monotonic, perf_counter

import numpy as np
import torch

from app.engine.admission.cost_model import CostModel
from app.engine.admission.playback import Playback
from app.engine.ar.stage import ArStage
from app.engine.backend.audio_maker import AudioMaker
from app.engine.backend.batch_factory import BatchFactory
from app.engine.backend.golden import compare, read_golden
from app.engine.backend.pipeline import RunningSpeech, run, spoken
from app.engine.backend.planner import Planner
from app.engine.core import AudioChunk, Plan, SpeechJob, SpeechResult
from app.engine.interface import GoldenResult, ModelInfo, RunningBatch
from app.engine.join.job import AudioJob
from app.engine.messages import ArMessage
from samplers.knobs.params import SamplingParams

MEASURED_S = 1.0
_TEXTS = ("One, two, three.", "Hello.", "Good morning.")


class _MeasuredSound:
    """A stream of sound whose pushes are counted as costs."""

    def __init__(self, sound: AudioJob, playback: Playback, costs: CostModel) -> None:
        self._sound = sound
        self._playback = playback
        self._costs = costs
        self.first_chunks = sound.first_chunks
        self.close = sound.close

    def push(self, message: ArMessage) -> Iterator[AudioChunk]:
        """Make the audio of a message at once, and note what it cost."""
        began_s = perf_counter()
        before_s = self._playback.audio_s
        chunks = list(self._sound.push(message))
        self._costs.note_audio(perf_counter() - began_s, self._playback.audio_s - before_s)
        return iter(chunks)


class SelfCheck:
    """Speaks a few words before the first request; an `app.engine.model.CheckPart`."""

    def __init__(
        self,
        planner: Planner,
        ar: BatchFactory,
        audio: AudioMaker,
        info: ModelInfo,
        folder: Path,
    ) -> None:
        self._planner = planner
        self._ar = ar
        self._audio = audio
        self.info = info
        self._folder = folder  # of the model's files

    def measure(self, costs: CostModel, slots: int) -> ArStage:
        """Speak for about a second and note what that costs; see `app.engine.model.CheckPart`.

        Both stages run in this thread by turns, so where they share a processor, as under a quota,
        each is as slow as it will be.
        """
        job = SpeechJob("measure", _TEXTS[0], SamplingParams(seed=0), max_duration_s=2)
        plan = self._planner.plan(job)
        batch = self._ar.batch(max(slots, plan.rows))  # what it records is no part of a start
        began_s = monotonic()
        while monotonic() - began_s < MEASURED_S:
            self._measure_once(batch, plan, costs)
        return batch

    def _measure_once(self, batch: RunningBatch, plan: Plan, costs: CostModel) -> None:
        rate_hz = self.info.frame_rate_hz
        playback = Playback(monotonic())
        frames = 0

        def note_step(step_s: float) -> bool:
            nonlocal frames
            costs.note_ar(step_s, max(0.0, (speech.job.frames - frames) / rate_hz))
            frames = speech.job.frames
            return True

        stream = self._audio.audio_stream(plan, playback)
        with closing(_MeasuredSound(stream, playback, costs)) as sound:
            began_s = perf_counter()
            speech = RunningSpeech(batch, plan, sound)
            costs.note_admission(perf_counter() - began_s)
            for _ in run(batch, [speech], note_step):
                pass
            batch.end(speech.job)
        if playback.first_s is not None:
            costs.note_start(playback.first_audio_s)

    def check_deterministic(self) -> bool:
        """Return whether a job has the same codes alone and among others; warms the model up, too.

        It has not where rounding depends on the number of rows. Nothing is captured for it.
        """
        # A GPU rounds otherwise for more than a few rows, which seldom changes a code: among three
        # it spoke a third of a second alike, and of whole requests one in ten.
        times, speech_s = (1, 0.3) if self.info.device == "cpu" else (3, 3.0)
        plans = [
            self._planner.plan(
                SpeechJob(f"check-{seed}", text, SamplingParams(seed=seed), max_duration_s=speech_s)
            )
            for seed, text in enumerate(times * _TEXTS)
        ]
        alone = [one.codes[:, 0] for one in self._spoken(plans[0].job).utterances]
        with closing(self._ar.called_batch(sum(plan.rows for plan in plans))) as batch:
            speeches = [RunningSpeech(batch, plan) for plan in plans]
            for _ in run(batch, speeches):
                pass  # without sound there is none
        codes = torch.cat([
            message.codes for message in speeches[0].sampled if message.kind in {"frames", "done"}
        ])
        return torch.equal(codes, torch.from_numpy(np.concatenate(alone)).long())

    def check_golden(self) -> GoldenResult | None:
        """Speak the model's golden requests and compare their codes with the stored ones.

        None if no codes are stored, or for another number format of the weights.
        """
        requests = read_golden(self._folder)
        if not requests or self.info.weights != "int8":
            return None
        return compare(self._spoken, requests)

    def _spoken(self, job: SpeechJob) -> SpeechResult:
        return spoken(self._ar, self._audio, self._planner.plan(job))

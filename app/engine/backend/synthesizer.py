"""The loaded model as the engine's backend: plans jobs, draws their codes, makes their audio.

Owns the model and its voices. Knows nothing of threads and queues: those are `app.engine.engine`'s.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from time import monotonic, perf_counter
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import torch

from app.engine.backend.golden import compare, read_golden
from app.engine.backend.loading import choose_device, load_speech, model_info
from app.engine.backend.pipeline import RunningSpeech, run
from app.engine.backend.planner import Catalog, Planner
from app.engine.cost_model import Capacity
from app.engine.interface import Batch, GoldenResult, Plan, Reading, SoundStream
from app.engine.job import AudioChunk, Codes, Progress, SpeechJob, SpeechResult
from app.engine.level_0.job import Level0Job
from app.engine.level_0.runner import JobBatch
from app.engine.memory import fits, memory_of, pages_of, prefix_bytes
from app.engine.messages import ArMessage
from app.engine.playback import Playback
from app.engine.reading import TextProcess
from app.engine.recordings import RecordingProcess
from app.engine.sound.decoder import SoundDecoder
from app.engine.sound.job import SoundJob
from app.engine.sound.job import replay as replayed
from app.engine.sound.process import SoundProcess
from app.engine.sound.recording import RecordedChunks
from app.engine.worker import ModelWorkers, sound_worker, text_worker
from models.checkpoints.sources import SpeechModel
from models.codecs.shipped_codes import codec_digest
from models.codecs.silence import known_silence
from models.cuda.graphs import LOW_PRIORITY, Record, Recorder, alone, as_it_is
from models.cuda.streams import new_stream
from models.placement import Residence
from models.prefix_cache import PrefixCache
from models.stack.paged_cache import PagePool
from models.voices.recording import Recording
from samplers.knobs.params import SamplingParams

if TYPE_CHECKING:
    from app.settings import Settings  # needs pydantic-settings, absent where torch is alone

MOST_UNRECORDED = 2
"""Functions that may be launched as usual; with more a GPU would be slower than a CPU."""

MEASURED_S = 1.0
_TEXTS = ("One, two, three.", "Hello.", "Good morning.")

OnProgress = Callable[[Progress], bool]
"""Called after every step; False stops the job."""


class _MeasuredSound:
    """A stream of sound whose pushes are counted as costs."""

    def __init__(self, sound: SoundJob, playback: Playback, costs: Capacity) -> None:
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
        self._costs.note_sound(perf_counter() - began_s, self._playback.audio_s - before_s)
        return iter(chunks)


class Synthesizer:
    """A loaded model; a `app.engine.interface.Backend`.

    Without a process of its own, sound is made and text is read in the calling thread.
    """

    def __init__(
        self,
        speech: SpeechModel,
        device: torch.device,
        settings: "Settings",
        catalog: Catalog,
        *,
        sound_process: SoundProcess | None = None,
        text_process: TextProcess | None = None,
    ) -> None:
        self.speech = speech
        self._device = device
        codec_sha256 = codec_digest(speech.codec)
        self._planner = Planner(
            speech,
            device,
            settings,
            catalog,
            codec_sha256=codec_sha256,
            text_process=text_process,
        )
        self._text_process = text_process
        self._recordings = RecordingProcess()
        self.voices, self.presets = self._planner.voices, self._planner.presets()
        self._recorders: dict[str, Recorder] = {}
        self._memory = memory = memory_of(speech.model, device, settings.kv_cache_dtype)
        if memory is None:
            self._prefixes = PrefixCache(speech.model)
            self._sound_decoder: SoundDecoder | SoundProcess = sound_process or SoundDecoder(speech)
        else:
            self._prefixes = PrefixCache(
                speech.model,
                max_bytes=prefix_bytes(speech.model.config, memory.size)[0],
                new_cache=lambda *size: memory.pool().new_cache(*size),
            )
            self._sound_decoder = SoundDecoder(speech, memory.pool, self._record_chunks)
        self._level_0: JobBatch | None = None
        weights = (speech.model, speech.codec, speech.vocos)
        self._residence = Residence(
            [module for module in weights if module is not None], device, torch.device("cpu")
        )
        # The codes of level 0 that the codec encodes silence as
        self.silent_codes = known_silence(speech.codec, speech.folder, codec_sha256)
        self.info = replace(model_info(speech, device), fields=self._planner.schemas())

    @classmethod
    def load(
        cls,
        settings: "Settings",
        catalog: Catalog | None = None,
        started: ModelWorkers | None = None,
    ) -> Self:
        """Load a model, in the thread that will draw level 0.

        Texts are read and sound is made in processes of their own, those that were ``started`` or
        new ones, as far as settings and device allow it; `prepare_sound` is then to be called
        before the first job. With None they are not.
        """
        torch.set_num_threads(settings.threads)
        device = choose_device(settings.device)
        sound = text = None
        if started and settings.voice_process and device.type == "cpu":
            sound = started.sound or sound_worker()
        if started and settings.text_process:
            text = started.text or text_worker()  # it imports while this one loads
        load = partial(load_speech, settings, device)
        is_here = (Path(settings.model) / "codec.json").is_file()
        if sound is not None and is_here:
            sound.load(load)  # while this one does
        try:
            speech = load()
            if sound is not None and not is_here:
                sound.load(load)  # what must be downloaded is so once
            return cls(
                speech,
                device,
                settings,
                catalog or Catalog(),
                sound_process=SoundProcess(sound) if sound else None,
                text_process=TextProcess(speech.model.config, text) if text else None,
            )
        except BaseException:
            for child in (sound, text):
                if child is not None:
                    child.close()
            raise

    def prepare_sound(self) -> None:
        """Make ready what makes the sound, in its thread; the process is started again if gone."""
        self._sound_decoder.ready()
        self._check_recordings()

    def sound_context(self) -> AbstractContextManager[None]:
        """Return the context of a CUDA stream for the sound, so that it never delays a step."""
        return torch.cuda.stream(new_stream(self._device))

    def unload(self, is_idle: Callable[[], bool]) -> None:
        """Move the weights off a GPU; the next `plan` or `replay` moves them back."""
        self._prefixes.clear()
        self._sound_decoder.clear_cache()
        if self._memory is not None:
            self._memory.forget()
        self._residence.send_away(is_idle)

    def close(self) -> None:
        """End the processes beside this one, if there are any."""
        self._sound_decoder.close()
        self._recordings.close()
        if self._text_process is not None:
            self._text_process.close()

    def plan(self, job: SpeechJob, on_piece: Callable[[], None] = lambda: None) -> Plan:
        """Plan a job, or refuse it; in the text thread. See `Planner.plan`."""
        self._residence.bring()
        plan = self._planner.plan(job, on_piece)
        pages = pages_of(plan, self.speech.model.config, self.info.frame_rate_hz)
        return replace(plan, made_by=self.info.made_by, pages=pages)

    def read(self, job: SpeechJob, on_piece: Callable[[], None] = lambda: None) -> Reading:
        """Convert the text of a job, in the text thread; see `Planner.read`."""
        return self._planner.read(job, on_piece)

    def recording(self, content: bytes, start_s: float | None = None) -> Recording:
        """Return what a file of audio has, read in another process; see `RecordingProcess.read`."""
        return self._recordings.read(content, start_s)

    def encode(self, recording: Recording) -> Codes:
        """Return the codes ``[T, K]`` of a recording; see `Planner.encode`."""
        self._residence.bring()
        return self._planner.encode(recording)

    def batch(self, slots: int) -> JobBatch:
        """Return a batch without jobs; see `app.engine.interface.Backend`.

        The weights are brought back first: a recorded step reads them where they lie now.
        """
        self._residence.bring()
        if self._memory is None:
            batch = self.called_batch(slots)
        else:
            with alone(self._device):
                assert isinstance(self._sound_decoder, SoundDecoder)
                self._sound_decoder.allocate()  # records again what went with the weights
                recorder = self._recorders["level 0"] = Recorder(self._device)
                batch = self.called_batch(slots, recorder.record)
            self._check_recordings()
        self._level_0 = batch
        return batch

    def _record_chunks(self, speech: SpeechModel, pool: PagePool) -> RecordedChunks:
        recorder = self._recorders["sound"] = Recorder(self._device, priority=LOW_PRIORITY)
        return RecordedChunks(speech, pool, recorder.record)

    def _check_recordings(self) -> None:
        """Tell what could not be recorded, and raise RuntimeError if it is more than a few."""
        failed = [why for one in self._recorders.values() for why in one.failed]
        self.info = replace(self.info, unrecorded=tuple(failed))
        if len(failed) > MOST_UNRECORDED:
            raise RuntimeError(f"{len(failed)} functions cannot be recorded: {failed[-1]}")

    def called_batch(self, slots: int, record: Record = as_it_is) -> JobBatch:
        """Return a batch without jobs; if nothing else is asked for, nothing is recorded for it."""
        return JobBatch(
            self.speech,
            partial(Level0Job, self.speech, self._planner.front_end, self.silent_codes),
            self._prefixes,
            slots=slots,
            record=record,
            pool=self._memory.pool() if self._memory else None,
        )

    def fits(self, plan: Plan, running: Iterable[Plan]) -> bool:
        """Return whether memory holds a job beside others; see `app.engine.memory`."""
        if self._memory is None:
            return True
        return fits(plan, running, self._memory.pool())

    @property
    def cache_bytes(self) -> Mapping[str, int]:
        """The bytes of keys and values, by what they are of; see `tts_kv_bytes` in the docs."""
        level_0 = self._level_0
        found = {
            "level_0": 0 if level_0 is None else level_0.cache_bytes,
            "prefixes": self._prefixes.bytes,
        }
        if self._memory is not None and (pool := self._memory.held) is not None:
            found["used"] = pool.used_bytes
            found["pool"] = pool.pages * pool.page_bytes
        return found

    def sound_stream(self, plan: Plan, playback: Playback) -> SoundJob:
        """Return what makes the audio of a job; see `app.engine.interface.Backend`."""
        return SoundJob(self.speech, plan, decoder=self._sound_decoder, playback=playback)

    @property
    def chunks_at_once(self) -> int:
        """The most chunks of audio that are made together; see `app.engine.interface.Backend`."""
        return self._sound_decoder.chunks_at_once

    def make_together(self, streams: Sequence[SoundStream]) -> Sequence[SoundStream]:
        """Make the next chunks of some streams; see `app.engine.interface.Backend`."""
        jobs: dict[Any, SoundJob] = {
            job.utterance: job
            for job in streams
            if isinstance(job, SoundJob) and job.utterance is not None
        }
        if len(jobs) < len(streams):
            return ()
        return [jobs[one] for one in self._sound_decoder.make_together([*jobs])]

    def speak(self, plan: Plan, on_progress: OnProgress | None = None) -> Iterator[AudioChunk]:
        """Yield the audio of one job, all in this thread, the last chunk with the result.

        As `app.engine.backend.pipeline.run`, for callers without an engine. ``on_progress`` is
        called after every step; False ends the job without a result.
        """
        playback = Playback(monotonic() - plan.text_s)
        with (
            closing(self.called_batch(plan.rows)) as batch,
            closing(self.sound_stream(plan, playback)) as sound,
        ):
            speech = RunningSpeech(batch, plan, sound)

            def goes_on(_: float) -> bool:
                return on_progress is None or on_progress(speech.job.progress)

            yield from run(batch, [speech], goes_on)

    def spoken(self, job: SpeechJob) -> SpeechResult:
        """Speak a job by itself, and return its result."""
        *_, last = self.speak(self.plan(job))
        assert last.result is not None  # the last chunk has it
        return last.result

    def measure(self, costs: Capacity, slots: int) -> JobBatch:
        """Speak for about a second and note what that costs; see `app.engine.interface.Backend`.

        Both stages run in this thread by turns, so where they share a processor, as under a quota,
        each is as slow as it will be.
        """
        job = SpeechJob("measure", _TEXTS[0], SamplingParams(seed=0), max_duration_s=2)
        plan = self.plan(job)
        batch = self.batch(max(slots, plan.rows))  # what it records is no part of a start
        began_s = monotonic()
        while monotonic() - began_s < MEASURED_S:
            self._measure_once(batch, plan, costs)
        return batch

    def _measure_once(self, batch: Batch, plan: Plan, costs: Capacity) -> None:
        rate_hz = self.info.frame_rate_hz
        playback = Playback(monotonic())
        frames = 0

        def note_step(step_s: float) -> bool:
            nonlocal frames
            costs.note_level_0(step_s, max(0.0, (speech.job.frames - frames) / rate_hz))
            frames = speech.job.frames
            return True

        with closing(_MeasuredSound(self.sound_stream(plan, playback), playback, costs)) as sound:
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

        It has not where rounding depends on the number of rows. Nothing is recorded for it.
        """
        # A GPU rounds otherwise for more than a few rows, which seldom changes a code: among three
        # it spoke a third of a second alike, and of whole requests one in ten.
        times, speech_s = (1, 0.3) if self.info.device == "cpu" else (3, 3.0)
        plans = [
            self.plan(
                SpeechJob(f"check-{seed}", text, SamplingParams(seed=seed), max_duration_s=speech_s)
            )
            for seed, text in enumerate(times * _TEXTS)
        ]
        alone = [one.codes[:, 0] for one in self.spoken(plans[0].job).utterances]
        with closing(self.called_batch(sum(plan.rows for plan in plans))) as batch:
            speeches = [RunningSpeech(batch, plan) for plan in plans]
            for _ in run(batch, speeches):
                pass  # without sound there is none
        codes = torch.cat([told.codes for told in speeches[0].drawn if told.kind != "started"])
        return torch.equal(codes, torch.from_numpy(np.concatenate(alone)).long())

    def check_golden(self) -> GoldenResult | None:
        """Speak the model's golden requests and compare their codes with the stored ones.

        None if no codes are stored, or for another number format of the weights.
        """
        requests = read_golden(self.speech.folder)
        return compare(self.spoken, requests) if requests and self.info.weights == "int8" else None

    def replay(self, result: SpeechResult, playback: Playback) -> Iterator[AudioChunk]:
        """Yield the audio of a speech once more, from its codes: the same samples."""
        self._residence.bring()
        rate_hz = self.info.sample_rate_hz
        return replayed(result, self._sound_decoder, playback, rate_hz)

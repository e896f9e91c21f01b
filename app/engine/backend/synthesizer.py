"""The loaded model as the engine's backend: plans jobs, draws their codes, makes their audio.

Owns the model and its voices. Knows nothing of threads and queues: those are `app.engine.engine`'s.
"""

import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Literal, Self

import torch

from app.engine.backend.alignment_heads import HeadScore, rate_heads
from app.engine.backend.golden import compare, read_golden
from app.engine.backend.loading import choose_device, choose_weights, load_speech, model_info
from app.engine.backend.planner import Planner
from app.engine.backend.residence import Residence
from app.engine.backend.self_check import is_deterministic, measure
from app.engine.child import Child
from app.engine.interface import (
    CostMeter,
    GoldenResult,
    Plan,
    Reading,
    Replay,
    SoundStream,
)
from app.engine.job import AudioChunk, Codes, Progress, SpeechJob, SpokenUtterance
from app.engine.level_0.job_batch import JobBatch
from app.engine.memory import fits, memory_of
from app.engine.playback import Playback
from app.engine.reading.client import TextProcess
from app.engine.reading.start import start as start_text_process
from app.engine.sound.job import SoundJob
from app.engine.sound.local import LocalSoundDecoder
from app.engine.sound.process.client import SoundProcess
from app.engine.sound.recorded.record import record_sound
from app.engine.sound.replay import replay as replayed
from app.engine.utterance import Level0Chunk
from app.storage.voice_store import VoiceStore
from models.checkpoints import DecoderName, SpeechModel
from models.checkpoints.hub import CACHE
from models.codecs.shipped_codes import codec_digest
from models.codecs.silence import known_silence
from models.config import AlignmentHead
from models.cuda.graphs import Record, Recorder
from models.cuda.streams import SideStream
from models.prefix_cache import PrefixCache
from samplers.knobs.params import SamplingParams
from samplers.knobs.presets import PRESETS, Presets

OnProgress = Callable[[Progress], bool]
"""Called after every frame; False stops the job."""


class Synthesizer:
    """A loaded model; a `app.engine.interface.Backend`.

    Attributes:
        voices: The voices that it can speak as.
        info: What the outside may know of it.
    """

    def __init__(
        self,
        speech: SpeechModel,
        device: torch.device,
        *,
        max_text_chars: int,
        max_audio_s: float = math.inf,
        presets: Presets = PRESETS,
        uploads: VoiceStore | None = None,
        voice_names: Mapping[str, str] | None = None,
        sound_process: SoundProcess | None = None,
        text_process: TextProcess | None = None,
    ) -> None:
        """Use a loaded model.

        Args:
            speech: On ``device``.
            device: Where the model is.
            max_text_chars: Longer texts are refused.
            max_audio_s: Longer speech is refused; see `app.engine.backend.planner`.
            presets: Those that a request may name.
            uploads: The store of uploaded voices; None: there are none.
            voice_names: The operator's further names of voices; see `app.engine.voices`.
            sound_process: Decodes codes to samples; None: the calling thread does.
            text_process: Reads texts; None: the calling thread does.

        Raises:
            CheckpointError: A voice's files, the vocabulary or the model's preset are not valid.
        """
        self._speech, self._device = speech, device
        codec_sha256 = codec_digest(speech.codec)
        self._planner = Planner(
            speech,
            device,
            codec_sha256=codec_sha256,
            presets=presets,
            uploads=uploads,
            max_text_chars=max_text_chars,
            max_audio_s=max_audio_s,
            voice_names=voice_names,
            text_process=text_process,
        )
        self._text_process = text_process
        self.voices = self._planner.voices
        self._memory = memory = memory_of(speech.model, device)
        if memory is None:
            self._prefixes = PrefixCache(speech.model)
            self._sound_decoder = sound_process or LocalSoundDecoder(speech)
        else:
            self._prefixes = PrefixCache(
                speech.model, new_cache=lambda *size: memory.pool().new_cache(*size)
            )
            self._sound_decoder = LocalSoundDecoder(speech, memory.pool, record_sound)
        self._level_0: JobBatch | None = None
        weights = (speech.model, speech.codec, speech.vocos)
        self._residence = Residence(
            [module for module in weights if module is not None], device, torch.device("cpu")
        )
        self._silent = known_silence(speech.codec, speech.folder, codec_sha256)
        self.info = model_info(speech, device)

    @property
    def silent_codes(self) -> tuple[int, ...]:
        """The codes of level 0 that the codec encodes silence as."""
        return tuple(torch.nonzero(self._silent)[:, 0].tolist())

    @property
    def presets(self) -> Mapping[str, SamplingParams]:
        """Each preset with every knob resolved for this model; see `Planner.presets`."""
        return self._planner.presets()

    def rate_heads(self, plan: Plan, utterances: Iterable[SpokenUtterance]) -> list[HeadScore]:
        """Return which attention heads follow the text, the surest first; see `alignment_heads`.

        Args:
            plan: Of a job in the voice that spoke.
            utterances: What it spoke.
        """
        return rate_heads(self._speech, self._planner.front_end, plan.prompt, utterances)

    @classmethod
    def load(
        cls,
        model: str | Path,
        device: Literal["auto", "cpu", "cuda"],
        *,
        weights: Literal["auto", "int8", "float32"] = "float32",
        decoder: DecoderName = "codec",
        threads: int,
        max_text_chars: int,
        max_audio_s: float = math.inf,
        presets: Presets = PRESETS,
        uploads: VoiceStore | None = None,
        voice_names: Mapping[str, str] | None = None,
        alignment: AlignmentHead | None = None,
        fused_kernels: Literal["auto", "off"] = "auto",
        cache: str | Path = CACHE,
        offline: bool = False,
        sound_process: bool = False,
        sound_start: Child | None = None,
        text_process: bool = False,
        text_start: Child | None = None,
    ) -> Self:
        """Load a model, in the thread that will draw level 0.

        Args:
            model: A folder, a published file, or a name of the hub.
            device: Where it runs.
            weights: Number format of the language model's matrices, on a CPU; see `choose_weights`.
            decoder: What decodes codes to samples.
            threads: Threads of one step.
            max_text_chars: Longer texts are refused.
            max_audio_s: Longer speech is refused; see `app.engine.backend.planner`.
            presets: Those that a request may name.
            uploads: The store of uploaded voices; None: there are none.
            voice_names: The operator's further names of voices; see `app.engine.voices`.
            alignment: The head that follows the text, in place of the model's own.
            fused_kernels: Whether kernels of our own are used on a GPU, where they can be.
            cache: Folder of codecs that were downloaded and converted.
            offline: Whether nothing may be downloaded.
            sound_process: Whether a process of its own decodes codes to samples, on a CPU.
            sound_start: That process, if it was started before.
            text_process: Whether a process of its own reads texts.
            text_start: That process, if it was started before.

        Raises:
            CheckpointError: The weights are missing, damaged or not what their description says.
        """
        torch.set_num_threads(threads)
        place = choose_device(device)
        load = partial(
            load_speech,
            model,
            place,
            weights=choose_weights(weights),
            alignment=alignment,
            fused_kernels=fused_kernels,
            decoder=decoder,
            threads=threads,
            cache=Path(cache),
            offline=offline,
        )
        process: SoundProcess | None = None
        if sound_process and place.type == "cpu":
            # It starts, and loads what is here, while this one does.
            at_once = (Path(model) / "codec.json").is_file()
            process = SoundProcess(load, sound_start, at_once=at_once)
        if text_process:
            text_start = text_start or start_text_process()  # it imports while this one loads
        try:
            speech = load()  # first, so that what must be downloaded is so once
            return cls(
                speech,
                place,
                max_text_chars=max_text_chars,
                max_audio_s=max_audio_s,
                presets=presets,
                uploads=uploads,
                voice_names=voice_names,
                sound_process=process,
                text_process=TextProcess(speech.model.config, text_start) if text_start else None,
            )
        except BaseException:
            for child in (process, text_start):
                if child is not None:
                    child.close()
            raise

    def prepare_sound(self) -> None:
        """Make ready what makes the sound, in its thread.

        The sound process, if there is one, is waited for, and started again if it is gone. On a
        GPU what its libraries prepare for each thread is prepared.

        Raises:
            GenerationFailed: The process cannot load the model.
        """
        if isinstance(self._sound_decoder, SoundProcess):
            self._sound_decoder.ready()
        elif self._device.type == "cuda":
            self._sound_decoder.warm_up()

    def sound_context(self) -> AbstractContextManager[None]:
        """Return the context of a CUDA stream for the sound, so that it never delays a step."""
        return SideStream(self._device).entered()

    def unload(self, is_idle: Callable[[], bool]) -> None:
        """Move the weights off a GPU; the next `plan` or `replay` moves them back.

        Args:
            is_idle: Whether the engine is idle; called while nobody can move them back.
        """
        self._prefixes.clear()
        self._sound_decoder.clear_cache()
        if self._memory is not None:
            self._memory.forget()
        self._residence.send_away(is_idle)

    def close(self) -> None:
        """End the processes beside this one, if there are any."""
        self._sound_decoder.close()
        if self._text_process is not None:
            self._text_process.close()

    def plan(self, job: SpeechJob, on_piece: Callable[[], None] = lambda: None) -> Plan:
        """Plan a job, or refuse it; in the text thread. See `Planner.plan`.

        Raises:
            InvalidRequest: The text or language is not for this model, there is no such preset,
                knobs contradict, or the model cannot honour one.
            UnknownVoice: There is no such voice.
        """
        self._residence.bring()
        return self._planner.plan(job, on_piece)

    def read(self, job: SpeechJob, on_piece: Callable[[], None] = lambda: None) -> Reading:
        """Convert the text of a job, in the text thread; see `Planner.read`.

        Raises:
            InvalidRequest: The text or language is not for this model.
            UnknownVoice: There is no such voice.
        """
        return self._planner.read(job, on_piece)

    def encode(self, content: bytes) -> Codes:
        """Return the codes ``[T, K]`` of a recording, in the text thread; see `Planner.encode`.

        Raises:
            InvalidRequest: The audio cannot be read.
        """
        self._residence.bring()
        return self._planner.encode(content)

    def batch(self, slots: int) -> JobBatch:
        """Return a batch without jobs; see `app.engine.interface.Backend`.

        The weights are brought back first: a recorded step reads them where they lie now.
        """
        self._residence.bring()
        record = None if self._memory is None else Recorder(self._device).record
        batch = self._level_0 = self._batch(slots, record)
        return batch

    def fits(self, plan: Plan, running: Iterable[Plan]) -> bool:
        """Return whether memory holds a job beside others; see `app.engine.memory`."""
        if self._memory is None:
            return True
        pool, config = self._memory.pool(), self._speech.model.config
        return fits(plan, running, pool, config, self.info.frame_rate_hz)

    @property
    def cache_bytes(self) -> Mapping[str, int]:
        """The bytes of keys and values, by what they are of; see `tts_kv_bytes` in the docs."""
        level_0 = self._level_0
        found = {
            "level_0": 0 if level_0 is None else level_0.cache_bytes,
            "prefixes": self._prefixes.bytes,
        }
        if self._memory is not None and (pool := self._memory.held) is not None:
            found["used"], found["pool"] = pool.used_bytes, pool.pages * pool.page_bytes
        return found

    def _batch(self, slots: int, record: Record | None) -> JobBatch:
        return JobBatch(
            self._speech,
            front_end=self._planner.front_end,
            silent=self._silent,
            prefixes=self._prefixes,
            slots=slots,
            record=record,
            pool=self._memory.pool() if record and self._memory else None,
        )

    def sound_stream(self, plan: Plan, playback: Playback) -> SoundJob:
        """Return what makes the audio of a job; see `app.engine.interface.Backend`."""
        return SoundJob(self._speech, plan, decoder=self._sound_decoder, playback=playback)

    @property
    def chunks_at_once(self) -> int:
        """The most chunks of audio that are made together; see `app.engine.interface.Backend`."""
        decoder = self._sound_decoder
        return decoder.chunks_at_once if isinstance(decoder, LocalSoundDecoder) else 1

    def make_together(self, streams: Sequence[SoundStream]) -> Sequence[SoundStream]:
        """Make the next chunks of some streams; see `app.engine.interface.Backend`."""
        decoder = self._sound_decoder
        jobs = {
            job.utterance: job
            for job in streams
            if isinstance(job, SoundJob) and job.utterance is not None
        }
        if not isinstance(decoder, LocalSoundDecoder) or len(jobs) < len(streams):
            return ()
        return [jobs[one] for one in decoder.make_together([*jobs])]

    def speak(
        self, plan: Plan, *, queue_s: float = 0.0, on_progress: OnProgress = lambda _: True
    ) -> Iterator[AudioChunk]:
        """Yield the audio of one job, all in this thread, the last chunk with the result.

        This is what the workers of an engine do, for callers without one.

        Args:
            plan: From `plan`.
            queue_s: Seconds that the job waited before.
            on_progress: Called after every step; False ends the job without a result.

        Raises:
            SpeechError: The model's logits or the codec's samples are not finite.
        """
        playback = Playback(monotonic() - queue_s - plan.text_s)
        with (
            closing(self._batch(plan.rows, None)) as batch,
            closing(self.sound_stream(plan, playback)) as sound,
        ):
            chunks: deque[Level0Chunk] = deque()
            job = batch.begin(plan, chunks.append)
            while not job.over:
                batch.step([job])
                if not on_progress(job.progress):
                    return
                while chunks:
                    yield from sound.push(chunks.popleft())
                if job.error is not None:
                    raise job.error

    def measure(self, costs: CostMeter) -> None:
        """Speak for about a second and note what that costs; see `self_check.measure`."""
        measure(self, costs)

    def check_deterministic(self) -> bool:
        """Return whether a job has the same codes alone and among others; see `self_check`."""
        return is_deterministic(self)

    def check_golden(self) -> GoldenResult | None:
        """Speak the model's golden requests and compare their codes with the stored ones.

        Returns:
            None if no codes are stored, or for another number format of the weights.

        Raises:
            CheckpointError: The file of requests is damaged.
        """
        requests = read_golden(self._speech.folder)
        return compare(self, requests) if requests and self.info.weights == "int8" else None

    def replay(self, replay: Replay, playback: Playback) -> Iterator[AudioChunk]:
        """Yield the audio of a speech once more, from its codes: the same samples.

        Args:
            replay: The result of the speech, spoken by this model.
            playback: Counts the audio.

        Raises:
            GenerationFailed: The samples are not finite.
        """
        self._residence.bring()
        rate_hz = self.info.sample_rate_hz
        return replayed(replay.result, self._sound_decoder, playback, rate_hz)

"""Loads a model and puts its parts together: one for each worker of an engine."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Self

import torch

from app.engine.backend.audio_maker import AudioMaker
from app.engine.backend.batch_factory import BatchFactory
from app.engine.backend.capturers import Capturers
from app.engine.backend.encoder import AudioEncoder
from app.engine.backend.loading import choose_device, load_speech, model_info
from app.engine.backend.model_memory import ModelMemory
from app.engine.backend.pipeline import OnProgress, speak, spoken
from app.engine.backend.planner import Catalog, Planner
from app.engine.backend.self_check import SelfCheck
from app.engine.child_process import ModelWorkers, audio_worker, text_worker
from app.engine.core import AudioChunk, Plan, SpeechJob, SpeechResult
from app.engine.interface import ModelInfo
from app.engine.memory import memory_of, prefix_bytes
from app.engine.nar.graph_runner import NarGraphRunner
from app.engine.nar.process import AudioProcess
from app.engine.nar.stage import NarStage
from app.engine.reading import TextProcess
from gpu.graphs import LOW_PRIORITY
from models.checkpoints.sources import SpeechModel
from models.codecs.shipped_codes import codec_digest
from models.codecs.silence import known_silence
from models.placement import WeightOffloader
from models.prefix_cache import PrefixCache
from models.stack.paged_cache import PagePool

if TYPE_CHECKING:
    from app.settings import Settings  # needs pydantic-settings, absent where torch is alone


@dataclass(frozen=True)
class Synthesizer:
    """A loaded model, for an engine or for who speaks without one.

    It is an `app.engine.model.LoadedModel`. Knows nothing of threads and queues: those are
    `app.engine.engine`'s.
    """

    speech: SpeechModel
    planner: Planner
    encoder: AudioEncoder
    ar: BatchFactory
    audio: AudioMaker
    memory: ModelMemory
    checks: SelfCheck
    capturers: Capturers
    text_process: TextProcess | None = None
    """None: texts are read in the calling thread."""

    @classmethod
    def load(
        cls,
        settings: "Settings",
        catalog: Catalog | None = None,
        started: ModelWorkers | None = None,
    ) -> Self:
        """Load a model, in the thread that will sample level 0.

        Texts are read and sound is made in processes of their own, those that were ``started`` or
        new ones, as far as settings and device allow it; `AudioMaker.prepare_audio` is then to be
        called before the first job. With None they are not.
        """
        torch.set_num_threads(settings.threads)
        device = choose_device(settings.device)
        sound = text = None
        if started and settings.voice_process and device.type == "cpu":
            sound = started.sound or audio_worker()
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
            return cls.of(
                speech,
                device,
                settings,
                catalog or Catalog(),
                audio_process=AudioProcess(sound) if sound else None,
                text_process=TextProcess(speech.model.config, text) if text else None,
            )
        except BaseException:
            for child in (sound, text):
                if child is not None:
                    child.close()
            raise

    @classmethod
    def of(
        cls,
        speech: SpeechModel,
        device: torch.device,
        settings: "Settings",
        catalog: Catalog,
        *,
        audio_process: AudioProcess | None = None,
        text_process: TextProcess | None = None,
    ) -> Self:
        """Return the parts over loaded weights; without a process they work where they are called.

        Raises CheckpointError as `Planner`.
        """
        model = speech.model
        info = model_info(speech, device)
        codec_sha256 = codec_digest(speech.codec)
        modules = [model, speech.codec] + ([speech.vocos] if speech.vocos is not None else [])
        offloader = WeightOffloader(modules, device, torch.device("cpu"))
        encoder = AudioEncoder(speech, device, offloader, codec_sha256)
        planner = Planner(
            speech,
            settings,
            catalog,
            encoder,
            made_by=info.made_by,
            text_process=text_process,
        )
        capturers = Capturers(device)
        pool = memory_of(model, device, settings.kv_cache_dtype, settings.gpu_memory_utilization)
        decoder: NarStage | AudioProcess
        if pool is None:
            prefixes = PrefixCache(model)
            decoder = audio_process or NarStage(speech)
        else:
            prefixes = PrefixCache(
                model,
                max_bytes=prefix_bytes(model.config, pool.size)[0],
                new_cache=lambda *size: pool.pool().new_cache(*size),
            )
            decoder = NarStage(speech, pool.pool, partial(capture_chunks, capturers))
        silent = known_silence(speech.codec, speech.folder, codec_sha256)
        ar = BatchFactory(speech, planner.front_end, silent, prefixes, pool, offloader)
        if isinstance(decoder, NarStage) and pool is not None:
            # What is captured of the sound went with the weights, too.
            ar.capture_with(capturers, before_capture=decoder.allocate)
        audio = AudioMaker(speech, decoder, device, offloader, capturers)
        memory = ModelMemory(offloader, prefixes, ar, decoder, pool)
        info = replace(info, fields=planner.schemas())
        checks = SelfCheck(planner, ar, audio, info, speech.folder)
        return cls(speech, planner, encoder, ar, audio, memory, checks, capturers, text_process)

    @property
    def info(self) -> ModelInfo:
        """What status pages and answers say of it."""
        failed = self.capturers.failed
        return replace(self.checks.info, unrecorded=failed) if failed else self.checks.info

    def speak(self, plan: Plan, on_progress: OnProgress | None = None) -> Iterator[AudioChunk]:
        """Yield the audio of one job, all in this thread; see `backend.pipeline.speak`."""
        return speak(self.ar, self.audio, plan, on_progress)

    def spoken(self, job: SpeechJob) -> SpeechResult:
        """Speak a job by itself, and return its result."""
        return spoken(self.ar, self.audio, self.planner.plan(job))

    def close(self) -> None:
        """End the processes beside this one, if there are any."""
        self.audio.decoder.close()
        self.encoder.close()
        if self.text_process is not None:
            self.text_process.close()


def capture_chunks(capturers: Capturers, speech: SpeechModel, pool: PagePool) -> NarGraphRunner:
    """Return the chunks of sound, captured."""
    return NarGraphRunner(speech, pool, capturers.renew("sound", priority=LOW_PRIORITY))

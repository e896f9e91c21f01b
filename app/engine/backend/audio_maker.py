"""Makes the audio of jobs: what a loaded model has for the thread that does."""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any

import torch

from app.engine.admission.playback import Playback
from app.engine.backend.capturers import Capturers
from app.engine.core import AudioChunk, Plan, SpeechResult
from app.engine.interface import AudioStream
from app.engine.join.job import AudioJob
from app.engine.join.job import replay as replayed
from app.engine.nar.process import AudioProcess
from app.engine.nar.stage import NarStage
from gpu.streams import new_stream
from models.checkpoints.sources import SpeechModel
from models.placement import WeightOffloader


class AudioMaker:
    """Makes the audio of jobs with a decoder, here or in its process.

    It is an `app.engine.model.AudioPart`.
    """

    def __init__(
        self,
        speech: SpeechModel,
        decoder: NarStage | AudioProcess,
        device: torch.device,
        offloader: WeightOffloader,
        capturers: Capturers,
    ) -> None:
        self._speech = speech
        self.decoder = decoder
        self._device = device
        self._offloader = offloader
        self._capturers = capturers

    def sound_context(self) -> AbstractContextManager[None]:
        """Return the context of a CUDA stream for the sound, so that it never delays a step."""
        return torch.cuda.stream(new_stream(self._device))

    def prepare_audio(self) -> None:
        """Make ready what makes the sound, in its thread; the process is started again if gone."""
        self.decoder.ready()
        self._capturers.check()

    def audio_stream(self, plan: Plan, playback: Playback) -> AudioJob:
        """Return what makes the audio of a job."""
        return AudioJob(self._speech, plan, decoder=self.decoder, playback=playback)

    def replay(self, result: SpeechResult, playback: Playback) -> Iterator[AudioChunk]:
        """Yield the audio of a speech once more, from its codes: the same samples."""
        self._offloader.load()
        rate_hz = self._speech.codec.config.sample_rate_hz
        return replayed(result, self.decoder, playback, rate_hz)

    @property
    def chunks_at_once(self) -> int:
        """The most chunks of audio that are made together; see `app.engine.model.AudioPart`."""
        return self.decoder.chunks_at_once

    def make_together(self, streams: Sequence[AudioStream]) -> Sequence[AudioStream]:
        """Make the next chunks of some streams; see `app.engine.model.AudioPart`."""
        jobs: dict[Any, AudioJob] = {
            job.utterance.decoder: job
            for job in streams
            if isinstance(job, AudioJob) and job.utterance is not None
        }
        if len(jobs) < len(streams):
            return ()
        return [jobs[one] for one in self.decoder.make_together([*jobs])]

"""The codes of audio: of voices, for texts that are planned, and of files that are uploaded."""

import numpy as np
import torch
from torch import Tensor

from app.engine.recordings import RecordingProcess
from app.engine.results import Codes
from gpu.graphs import device_lock
from gpu.streams import new_stream
from models.checkpoints.sources import SpeechModel
from models.placement import WeightOffloader
from models.voices.recording import Recording
from models.voices.voice import PromptCodes, Voice


class AudioEncoder:
    """Encodes audio, voices in one thread and files in another; an `app.engine.model.EncoderPart`.

    Files are read in another process. No step waits for a voice that is encoded, and no voice for
    a file: each has a CUDA stream of its own.
    """

    def __init__(
        self,
        speech: SpeechModel,
        device: torch.device,
        offloader: WeightOffloader,
        codec_sha256: str,
    ) -> None:
        self._codec = speech.codec
        self._device = device
        self.offloader = offloader
        self._reader = RecordingProcess()
        self._voice_stream = new_stream(device)
        self._file_stream = new_stream(device)
        self._prompts = PromptCodes(
            speech.codec,
            device,
            max_frames=speech.model.config.max_prompt_frames,
            digest=codec_sha256,
        )

    def prompt(self, voice: Voice) -> Tensor | None:
        """Return the prompt codes ``[Tp, K]`` of a voice, complete for every CUDA stream."""
        with device_lock(self._device), torch.cuda.stream(self._voice_stream):
            prompt = self._prompts.of(voice)
            if prompt is not None and prompt.is_cuda:
                torch.cuda.current_stream(prompt.device).synchronize()
            return prompt

    @torch.inference_mode()
    def encode(self, audio: Recording) -> Codes:
        """Return the codes ``[T, K]`` of an audio file, as of a voice's; in any one thread."""
        import soxr

        self.offloader.load()
        rate_hz = self._codec.config.sample_rate_hz
        samples = soxr.resample(audio.samples, audio.rate_hz, rate_hz)
        device = self._codec.quantizer.codebooks.device
        with device_lock(self._device), torch.cuda.stream(self._file_stream):
            codes = self._codec.encode(torch.from_numpy(samples.astype(np.float32)).to(device))
            return codes.cpu().numpy().astype(np.int16)

    def read_audio(self, content: bytes, start_s: float | None = None) -> Recording:
        """Return what an audio file has; raises as `RecordingProcess.read`."""
        return self._reader.read(content, start_s)

    def close(self) -> None:
        """End the process that reads files."""
        self._reader.close()

"""What speech is made of before it is shaped: pulses at the pitch of the voice, and noise.

The phase of a voice is its pitch summed over time, which no feed-forward network computes. So pitch
is predicted, phase follows by summation, and the decoder only shapes: the source-filter model (Fant
1960), with a predicted filter as in DDSP (Engel et al. 2020, arXiv:2001.04643).
"""

import math

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from models.codecs.frame_conv import FrameConv
from models.codecs.streaming import DecoderState
from models.config import SpectralCodecConfig

_MIDDLE_HZ = 150.0
_LOWEST_HZ = 50.0
_HIGHEST_HZ = 600.0
_STEEPEST = 0.03  # the most that pitch changes from one frame to the next, within their windows
_TOP = 0.46  # of the sample rate: pulses have no harmonics above
_NOISE_FRAMES = 512  # then it comes again, after seven seconds
_NEAR_ZERO = 1e-4  # of a sine: a pulse's limit stands there


class Excitation(nn.Module):
    """Pitch from the latent, and the spectra of pulses and of noise in each frame's window.

    Pitch and phase are computed in float64: they are summed over a whole utterance, and a stream
    shall end where one piece does.
    """

    window: Tensor
    noise: Tensor

    def __init__(self, config: SpectralCodecConfig, window: Tensor) -> None:
        super().__init__()
        self.config = config
        width = config.pitch_width
        self.embed = FrameConv(config.dimension, width, causal=True, groups=1)
        self.over_time = FrameConv(width, width, causal=True, groups=1)
        self.out = nn.Linear(width, 1)
        self.register_buffer("window", window, persistent=False)
        self.register_buffer("noise", _noise_spectra(config, window), persistent=False)

    def pitch(self, latent: Tensor, state: DecoderState | None = None) -> Tensor:
        """Return the pitch ``[B, T]`` in Hz, float64, in the middle of each frame's window."""
        x = F.silu(self.embed(latent.double(), state))
        x = F.silu(self.over_time(x, state))
        octaves = F.linear(x, self.out.weight.double(), self.out.bias.double())[..., 0]
        lowest, highest = (math.log2(hz / _MIDDLE_HZ) for hz in (_LOWEST_HZ, _HIGHEST_HZ))
        return _MIDDLE_HZ * torch.exp2(octaves.clamp(lowest, highest))

    @torch.no_grad()
    def forward(
        self, pitch_hz: Tensor, state: DecoderState | None, pulse_positions: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Return spectra of pulses and of noise, ``[B, T, bins]`` complex.

        Harmonics peak at 1, noise has unit variance. Where ``pulse_positions`` ``[B, T]``, in
        cycles, are not below 0, pulses stand there in the middle of a window, instead of where the
        sum of the pitch puts them: training puts them where the teacher's are.
        """
        batch, count = pitch_hz.shape
        hop = self.config.hop
        rate_hz = self.config.sample_rate_hz
        past = F.pad(pitch_hz[:, :1], (0, 2))  # what was before: pitch, cycles, frames
        if state is not None:
            past = state.past(self, past)
        before_hz = torch.cat([past[:, :1], pitch_hz[:, :-1]], 1)
        turns = (before_hz + pitch_hz) * (hop / 2 / rate_hz)
        cycles = (past[:, 1:2] + turns.cumsum(1)) % 1
        if pulse_positions is not None:
            cycles = torch.where(pulse_positions >= 0, pulse_positions.to(cycles.dtype), cycles)
        if state is not None:
            state[self] = torch.stack([pitch_hz[:, -1], cycles[:, -1], past[:, 2] + count], 1)
        steepest = _STEEPEST * pitch_hz
        change_hz = (pitch_hz - before_hz).clamp(-steepest, steepest)
        first = past[:, 2:] if state is not None else past[:1, 2:]  # the same for all
        frames = torch.arange(count, device=pitch_hz.device) + first.long()
        frames = frames % _NOISE_FRAMES
        return self._pulses(pitch_hz, change_hz / hop, cycles), self.noise[frames].expand(
            batch, -1, -1
        )

    def _pulses(self, pitch_hz: Tensor, slope: Tensor, cycles: Tensor) -> Tensor:
        """Return spectra of all harmonics at once, by the closed form of a sum of cosines."""
        window = self.config.window
        rate_hz = self.config.sample_rate_hz
        time = torch.arange(window, device=cycles.device, dtype=torch.float64) - window / 2
        chirped = pitch_hz[..., None] + slope[..., None] * time / 2
        phase = (cycles[..., None] + chirped * time / rate_hz) % 1
        harmonics = (_TOP * rate_hz / pitch_hz).floor()[..., None]
        half = torch.sin(math.pi * phase).float()
        ratio = torch.sin((2 * harmonics + 1).float() * (math.pi * phase).float()) / (2 * half)
        pulses = torch.where(half.abs() < _NEAR_ZERO, harmonics.float(), ratio - 0.5)
        return torch.fft.rfft(pulses * (self.window * (2 / self.window.sum())))


def _noise_spectra(config: SpectralCodecConfig, window: Tensor) -> Tensor:
    """Return ``[_NOISE_FRAMES, bins]`` complex: windows of one noise that goes round."""
    values = np.random.default_rng(0).standard_normal(_NOISE_FRAMES * config.hop)
    noise = torch.from_numpy(values.astype(np.float32))
    pieces = torch.cat([noise, noise[: config.window]]).unfold(0, config.window, config.hop)
    return torch.fft.rfft(pieces[:_NOISE_FRAMES] * (window / window.square().sum().sqrt()))

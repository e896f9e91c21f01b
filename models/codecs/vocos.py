"""Vocos: another decoder for EnCodec's codes (Siuzdak 2023, arXiv:2306.00814).

ConvNeXt blocks over the frames, conditioned on the bit rate, predict magnitudes and phases of one
short spectrum a frame, which are overlapped and added. Its convolutions are not causal, so it
decodes whole utterances: a stream returns nothing before its end.
"""

import sys
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from models.codecs.interface import Decoder
from models.codecs.quantizer import check_codes
from models.codecs.streaming import DecoderState
from models.config import VocosConfig

_KERNEL = 7  # of every convolution
_EPS = 1e-6  # of every norm
_MAX_MAGNITUDE = 100.0  # larger magnitudes are clamped, as upstream


class _AdaptiveNorm(nn.Module):
    """Layer norm with a scale and shift for each bit rate."""

    def __init__(self, bandwidths: int, width: int) -> None:
        super().__init__()
        self.scale = nn.Embedding(bandwidths, width)
        self.shift = nn.Embedding(bandwidths, width)

    def forward(self, x: Tensor, bandwidth: int) -> Tensor:
        """Normalise ``[T, D]``."""
        normal = F.layer_norm(x, x.shape[-1:], eps=_EPS)
        return normal * self.scale.weight[bandwidth] + self.shift.weight[bandwidth]


class _VocosBlock(nn.Module):
    """A 1-D ConvNeXt block: depthwise convolution over time, then an MLP on each frame."""

    def __init__(self, config: VocosConfig) -> None:
        super().__init__()
        width = config.width
        self.dwconv = nn.Conv1d(width, width, _KERNEL, padding=_KERNEL // 2, groups=width)
        self.norm = _AdaptiveNorm(len(config.bandwidth_levels), width)
        self.pwconv1 = nn.Linear(width, config.ffn)
        self.pwconv2 = nn.Linear(config.ffn, width)
        self.gamma = nn.Parameter(torch.zeros(width))

    def forward(self, x: Tensor, bandwidth: int) -> Tensor:
        """Map ``[T, D]`` to the same shape."""
        y = self.norm(self.dwconv(x.T[None])[0].T, bandwidth)
        return x + self.gamma * self.pwconv2(F.gelu(self.pwconv1(y)))


class Vocos(Decoder):
    """A decoder of EnCodec's codes; it has no encoder."""

    config: VocosConfig
    codebooks: Tensor
    window: Tensor

    def __init__(self, config: VocosConfig) -> None:
        super().__init__()
        self.config = config
        shape = config.levels, config.codes, config.dimension
        self.register_buffer("codebooks", torch.zeros(shape))
        self.register_buffer("window", torch.hann_window(config.window))
        self.embed = nn.Conv1d(config.dimension, config.width, _KERNEL, padding=_KERNEL // 2)
        self.norm = _AdaptiveNorm(len(config.bandwidth_levels), config.width)
        blocks = nn.ModuleList(_VocosBlock(config) for _ in range(config.layers))
        self.convnext = cast("list[_VocosBlock]", blocks)
        self.final_layer_norm = nn.LayerNorm(config.width, eps=_EPS)
        self.out = nn.Linear(config.width, config.window + 2)

    @property
    def first_frames(self) -> int:
        """No number of frames is enough: see the module."""
        return sys.maxsize

    @torch.inference_mode()
    def decode(self, codes: Tensor, state: DecoderState | None = None) -> Tensor:  # noqa: ARG002
        """Return samples; see `Decoder`. The lowest trained bit rate with K levels is taken."""
        check_codes(codes, self.config)
        levels = codes.shape[1]
        bandwidth = next(
            place for place, most in enumerate(self.config.bandwidth_levels) if levels <= most
        )
        rows = torch.arange(levels, device=self.codebooks.device)
        latent = self.codebooks[rows, codes.to(rows.device)].sum(1)
        x = self.norm(self.embed(latent.T[None])[0].T, bandwidth)
        for block in self.convnext:
            x = block(x, bandwidth)
        magnitude, phase = self.out(self.final_layer_norm(x)).chunk(2, -1)
        return self._overlap(torch.polar(magnitude.exp().clamp(max=_MAX_MAGNITUDE), phase))

    def _overlap(self, spectra: Tensor) -> Tensor:
        """Inverse STFT of ``[T, window / 2 + 1]``: samples ``[T * hop]``."""
        window = self.config.window
        hop = self.config.hop
        frames = torch.fft.irfft(spectra, window) * self.window
        weights = self.window.square().expand_as(frames)
        joined = [
            F.fold(
                part.T[None],
                (1, (len(spectra) - 1) * hop + window),
                kernel_size=(1, window),
                stride=(1, hop),
            ).flatten()
            for part in (frames, weights)
        ]
        edge = (window - hop) // 2
        samples, weight = (part[edge : len(part) - edge] for part in joined)
        return samples / weight

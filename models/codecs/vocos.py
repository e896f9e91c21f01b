"""Vocos: another decoder for EnCodec's codes (Siuzdak 2023, arXiv:2306.00814).

ConvNeXt blocks over the frames, conditioned on the bit rate, then the magnitudes and phases of one
short spectrum a frame, overlapped and added. The architecture of the published weights, and their
tensor names but for the prefixes. Its convolutions see both ways, so it speaks an utterance as a
whole: a stream of it gives nothing before its end.
"""

from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from models.config import VocosConfig

_KERNEL = 7  # of every convolution
_EPS = 1e-6  # of every norm
_LOUDEST = 100.0  # magnitudes are cut off here, as upstream does


class _AdaptiveNorm(nn.Module):
    """Layer norm whose scale and shift belong to a bit rate."""

    def __init__(self, bandwidths: int, width: int) -> None:
        super().__init__()
        self.scale = nn.Embedding(bandwidths, width)
        self.shift = nn.Embedding(bandwidths, width)

    def forward(self, x: Tensor, bandwidth: int) -> Tensor:
        """Normalise ``[T, D]``."""
        normal = F.layer_norm(x, x.shape[-1:], eps=_EPS)
        return normal * self.scale.weight[bandwidth] + self.shift.weight[bandwidth]


class _Block(nn.Module):
    """ConvNeXt in one dimension: each channel over time, then all channels a frame."""

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


class Vocos(nn.Module):
    """Decodes codes to speech; it has no encoder."""

    codebooks: Tensor
    window: Tensor

    def __init__(self, config: VocosConfig) -> None:
        super().__init__()
        self.config = config
        levels = max(config.bandwidth_levels)
        self.register_buffer("codebooks", torch.zeros(levels, config.codes, config.dimension))
        self.register_buffer("window", torch.hann_window(config.window))
        self.embed = nn.Conv1d(config.dimension, config.width, _KERNEL, padding=_KERNEL // 2)
        self.norm = _AdaptiveNorm(len(config.bandwidth_levels), config.width)
        blocks = nn.ModuleList(_Block(config) for _ in range(config.layers))
        self.convnext = cast("list[_Block]", blocks)
        self.final_layer_norm = nn.LayerNorm(config.width, eps=_EPS)
        self.out = nn.Linear(config.width, config.window + 2)

    @torch.inference_mode()
    def decode(self, codes: Tensor) -> Tensor:
        """Return the speech of an utterance.

        Args:
            codes: ``[T, K]`` int64, K from 1 to all levels; the bit rate is the least that it was
                trained at with so many.

        Returns:
            ``[T * hop]`` float32.

        Raises:
            ValueError: The shape or an id is out of range.
        """
        self._check(codes)
        levels = codes.shape[1]
        bandwidth = next(
            place for place, most in enumerate(self.config.bandwidth_levels) if levels <= most
        )
        rows = torch.arange(levels, device=codes.device)
        latent = self.codebooks[rows, codes].sum(1)
        x = self.norm(self.embed(latent.T[None])[0].T, bandwidth)
        for block in self.convnext:
            x = block(x, bandwidth)
        magnitude, phase = self.out(self.final_layer_norm(x)).chunk(2, -1)
        return self._overlap(torch.polar(magnitude.exp().clamp(max=_LOUDEST), phase))

    def stream(self) -> "WholeStream":
        """Return what takes frames as a codec's stream does, and speaks at the end."""
        return WholeStream(self)

    def _overlap(self, spectra: Tensor) -> Tensor:
        """Return ``[T * hop]`` of ``[T, window / 2 + 1]``: inverse transforms, windowed and added.

        What the windows weigh together is divided out; half of what a window reaches over its
        frame is cut off at either end.
        """
        window, hop = self.config.window, self.config.hop
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

    def _check(self, codes: Tensor) -> None:
        most = len(self.codebooks)
        if codes.ndim != 2 or not 1 <= codes.shape[1] <= most or not len(codes):
            raise ValueError(f"codes must be [T, 1..{most}] with T > 0, got {list(codes.shape)}")
        if int(codes.min()) < 0 or int(codes.max()) >= self.config.codes:
            raise ValueError(f"codes must lie in 0..{self.config.codes - 1}")


class WholeStream:
    """One utterance: its frames are collected, and decoded together when they have ended."""

    def __init__(self, vocos: Vocos) -> None:
        self._vocos = vocos
        self._codes: list[Tensor] = []

    def push(self, codes: Tensor) -> Tensor:
        """Take frames ``[T, K]`` and return no samples.

        Raises:
            ValueError: As `Vocos.decode`.
        """
        self._vocos._check(codes)
        self._codes.append(codes)
        return torch.zeros(0, device=codes.device)

    def finish(self) -> Tensor:
        """Return all samples ``[N]``; the stream is then at its end."""
        if not self._codes:
            return torch.zeros(0)
        codes, self._codes = torch.cat(self._codes), []
        return self._vocos.decode(codes)

"""EnCodec, with the architecture and tensor names of the published codec.

SEANet convolutions and an LSTM around residual vector quantisation (Défossez et al. 2022,
arXiv:2210.13438). All convolutions are causal, so decoding can be streamed exactly: each layer
keeps the inputs that its next output needs. That state belongs to a stream (`CodecStream`), not
to the shared weights, so any number of streams may use one codec.
"""

from collections.abc import Iterator
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from models.codecs.interface import Codec
from models.codecs.quantizer import Quantizer, check_samples
from models.codecs.streaming import DecoderState
from models.config import CodecConfig


class CausalConv(nn.Module):
    """A causal convolution; EnCodec's ``SConv1d``."""

    def __init__(
        self,
        channels_in: int,
        channels_out: int,
        kernel: int,
        *,
        stride: int = 1,
        pad_mode: str,
    ) -> None:
        super().__init__()
        self.conv = nn.ModuleDict({
            "conv": nn.Conv1d(channels_in, channels_out, kernel, stride=stride)
        })
        self.stride = stride
        self.reach = kernel  # receptive field in inputs
        self.pad_mode = pad_mode

    def forward(self, x: Tensor, state: DecoderState | None = None) -> Tensor:
        """Convolve ``[B, C, T]``; with ``state``, as the continuation of earlier chunks.

        Without state the end is padded too, so that every input is part of a whole frame.
        """
        if state is None:
            return self.conv["conv"](self._pad(x, end=-x.shape[-1] % self.stride))
        kept = self.reach - self.stride
        before = state.get(self)
        if before is not None and state.begins is not None and self.pad_mode != "constant":
            before = state.past(self, self._pad(x)[..., :kept])
        joined = self._pad(x) if before is None else torch.cat([before, x], -1)
        state[self] = joined[..., joined.shape[-1] - kept :]
        return self.conv["conv"](joined)

    def _pad(self, x: Tensor, end: int = 0) -> Tensor:
        start = self.reach - self.stride
        if self.pad_mode == "constant" or start == end == 0:
            return F.pad(x, (start, end))
        # A signal shorter than its reflection is padded with zeros first, as in EnCodec.
        missing = max(0, max(start, end) + 1 - x.shape[-1])
        padded = F.pad(F.pad(x, (0, missing)), (start, end), mode="reflect")
        return padded[..., : padded.shape[-1] - missing]


class CausalConvTranspose(nn.Module):
    """Upsampling by ``stride`` with a kernel of ``2 * stride``; EnCodec's ``SConvTranspose1d``."""

    def __init__(self, channels_in: int, channels_out: int, stride: int) -> None:
        super().__init__()
        self.convtr = nn.ModuleDict({
            "convtr": nn.ConvTranspose1d(channels_in, channels_out, 2 * stride, stride=stride)
        })
        self.stride = stride

    def forward(self, x: Tensor, state: DecoderState | None = None) -> Tensor:
        """Upsample ``[B, C, T]`` to ``[B, C', T * stride]``; with ``state``, as a continuation."""
        convtr = cast(nn.ConvTranspose1d, self.convtr["convtr"])
        full = convtr(x)
        out = full[..., : -self.stride]
        tail = full[..., -self.stride :]
        if state is None:
            return out
        before = state.get(self)
        if before is not None:
            out = torch.cat([out[..., : self.stride] + before, out[..., self.stride :]], -1)
        # The bias is in all of `full`; where two chunks overlap it must be added only once.
        state[self] = tail - cast(Tensor, convtr.bias)[:, None]
        return out


class ResidualLstm(nn.Module):
    """An LSTM over time, added to its input; EnCodec's ``SLSTM``."""

    def __init__(self, width: int, layers: int) -> None:
        super().__init__()
        self.lstm = nn.LSTM(width, width, layers)

    def forward(self, x: Tensor, state: DecoderState | None = None) -> Tensor:
        """Map ``[B, C, T]`` to the same shape."""
        before = None if state is None else state.get(self)  # [B, 2, layers, C]
        if before is not None:
            before = before.permute(1, 2, 0, 3).contiguous()
        y, after = self.lstm(x.permute(2, 0, 1), None if before is None else tuple(before))
        if state is not None:
            state[self] = torch.stack([part.transpose(0, 1) for part in after], 1)
        return x + y.permute(1, 2, 0)


class Elu(nn.Module):
    """ELU with the signature of the streaming layers; it has no state."""

    def forward(self, x: Tensor, state: DecoderState | None = None) -> Tensor:  # noqa: ARG002
        """Apply ELU to any shape."""
        return F.elu(x)


class ResidualBlock(nn.Module):
    """ELU, convolution of kernel 3, ELU, convolution of kernel 1; the shortcut has kernel 1."""

    def __init__(self, channels: int, pad_mode: str) -> None:
        super().__init__()
        hidden = channels // 2
        self.block = nn.ModuleList([
            Elu(),
            CausalConv(channels, hidden, 3, pad_mode=pad_mode),
            Elu(),
            CausalConv(hidden, channels, 1, pad_mode=pad_mode),
        ])
        self.shortcut = CausalConv(channels, channels, 1, pad_mode=pad_mode)

    def forward(self, x: Tensor, state: DecoderState | None = None) -> Tensor:
        """Map ``[B, C, T]`` to the same shape."""
        y = x
        for layer in self.block:
            y = layer(y, state)
        return self.shortcut(x, state) + y


class _LayerSequence(nn.Module):
    """Layers applied in order; the attribute has EnCodec's name ``model``."""

    def __init__(self, layers: Iterator[nn.Module]) -> None:
        super().__init__()
        self.model = nn.ModuleList(layers)

    def forward(self, x: Tensor, state: DecoderState | None = None) -> Tensor:
        for layer in self.model:
            x = layer(x, state)
        return x


def _encoder_layers(config: CodecConfig) -> Iterator[nn.Module]:
    channels = config.filters
    pad = config.pad_mode
    yield CausalConv(1, channels, 7, pad_mode=pad)
    for ratio in reversed(config.ratios):
        yield ResidualBlock(channels, pad)
        yield Elu()
        yield CausalConv(channels, 2 * channels, 2 * ratio, stride=ratio, pad_mode=pad)
        channels *= 2
    yield ResidualLstm(channels, config.lstm_layers)
    yield Elu()
    yield CausalConv(channels, config.dimension, 7, pad_mode=pad)


def _decoder_layers(config: CodecConfig) -> Iterator[nn.Module]:
    channels = config.filters * 2 ** len(config.ratios)
    pad = config.pad_mode
    yield CausalConv(config.dimension, channels, 7, pad_mode=pad)
    yield ResidualLstm(channels, config.lstm_layers)
    for ratio in config.ratios:
        yield Elu()
        yield CausalConvTranspose(channels, channels // 2, ratio)
        channels //= 2
        yield ResidualBlock(channels, pad)
    yield Elu()
    yield CausalConv(channels, 1, 7, pad_mode=pad)


class Encodec(Codec):
    """The codec.

    With reflect padding the first sample depends on the first 7 frames.
    """

    config: CodecConfig

    def __init__(self, config: CodecConfig) -> None:
        super().__init__()
        self.config = config
        self.encoder = _LayerSequence(_encoder_layers(config))
        self.decoder = _LayerSequence(_decoder_layers(config))
        self.quantizer = Quantizer(config)

    @property
    def first_frames(self) -> int:
        """How many frames must be known before there is a first sample."""
        return 7 if self.config.pad_mode == "reflect" else 1

    @torch.inference_mode()
    def encode(self, samples: Tensor, *, as_it_is: bool = False) -> Tensor:  # noqa: ARG002
        """Return codes; see `models.codecs.interface.Codec`."""
        check_samples(samples)
        latent = self.encoder((samples * self.config.gain)[None, None])
        return self.quantizer.encode(latent[0].T)

    def sound(self, latent: Tensor, state: DecoderState | None = None) -> Tensor:
        """Return samples; see `models.codecs.interface.Codec`."""
        return self.decoder(latent.transpose(1, 2), state)[:, 0] / self.config.gain

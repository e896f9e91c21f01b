"""EnCodec: a codec of its architecture and tensor names.

SEANet convolutions around an LSTM, residual vector quantisation between them (Défossez et al. 2022,
arXiv:2210.13438). All convolutions are causal, so decoding can be streamed exactly: each keeps the
inputs that its next output will need. That state is a value the caller holds (`DecoderStream`),
never an attribute of the shared weights, so any number of streams may use one codec.

It knows nothing of language models, containers or voices.
"""

from collections.abc import Iterator
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from models.codecs.quantizer import Quantizer, check_codes, check_samples
from models.config import CodecConfig

State = dict[nn.Module, Tensor | tuple[Tensor, Tensor]]
"""What a stream remembers of each layer."""


class CausalConv(nn.Module):
    """A convolution whose output at a time sees nothing later; EnCodec's ``SConv1d``."""

    def __init__(
        self,
        channels_in: int,
        channels_out: int,
        kernel: int,
        *,
        stride: int = 1,
        dilation: int = 1,
        pad_mode: str,
    ) -> None:
        super().__init__()
        self.conv = nn.ModuleDict({
            "conv": nn.Conv1d(channels_in, channels_out, kernel, stride=stride, dilation=dilation)
        })
        self.stride = stride
        self.reach = (kernel - 1) * dilation + 1  # inputs that one output sees
        self.pad_mode = pad_mode

    def forward(self, x: Tensor, state: State | None = None) -> Tensor:
        """Convolve ``[B, C, T]``; with ``state``, as the continuation of what came before.

        Without state the end is padded too, so that every input is covered by a whole frame.
        """
        if state is None:
            return self.conv["conv"](self._pad(x, end=-x.shape[-1] % self.stride))
        before = state.get(self)
        joined = self._pad(x) if before is None else torch.cat([cast(Tensor, before), x], -1)
        kept = self.reach - self.stride
        state[self] = joined[..., joined.shape[-1] - kept :]
        return self.conv["conv"](joined)

    def _pad(self, x: Tensor, end: int = 0) -> Tensor:
        start = self.reach - self.stride
        if self.pad_mode == "constant" or start == end == 0:
            return F.pad(x, (start, end))
        # A signal shorter than its own reflection is lengthened with zeros for the purpose, as
        # EnCodec does.
        lacking = max(0, max(start, end) + 1 - x.shape[-1])
        padded = F.pad(F.pad(x, (0, lacking)), (start, end), mode="reflect")
        return padded[..., : padded.shape[-1] - lacking]


class CausalConvTranspose(nn.Module):
    """An upsampling by ``stride`` with kernel ``2 * stride``; EnCodec's ``SConvTranspose1d``."""

    def __init__(self, channels_in: int, channels_out: int, stride: int) -> None:
        super().__init__()
        self.convtr = nn.ModuleDict({
            "convtr": nn.ConvTranspose1d(channels_in, channels_out, 2 * stride, stride=stride)
        })
        self.stride = stride

    def forward(self, x: Tensor, state: State | None = None) -> Tensor:
        """Upsample ``[B, C, T]`` to ``[B, C', T * stride]``; with ``state``, as a continuation."""
        convtr = cast(nn.ConvTranspose1d, self.convtr["convtr"])
        full = convtr(x)
        out, tail = full[..., : -self.stride], full[..., -self.stride :]
        if state is None:
            return out
        before = state.get(self)
        if before is not None:
            out = torch.cat(
                [out[..., : self.stride] + cast(Tensor, before), out[..., self.stride :]], -1
            )
        # The bias is in `full` everywhere; it must be added once where two chunks overlap.
        state[self] = tail - cast(Tensor, convtr.bias)[:, None]
        return out


class ResidualLstm(nn.Module):
    """An LSTM over time, added to its input; EnCodec's ``SLSTM``."""

    def __init__(self, width: int, layers: int) -> None:
        super().__init__()
        self.lstm = nn.LSTM(width, width, layers)

    def forward(self, x: Tensor, state: State | None = None) -> Tensor:
        """Map ``[B, C, T]`` to the same shape."""
        before = None if state is None else cast("tuple[Tensor, Tensor] | None", state.get(self))
        y, after = self.lstm(x.permute(2, 0, 1), before)
        if state is not None:
            state[self] = after
        return x + y.permute(1, 2, 0)


class Elu(nn.Module):
    """ELU, taking and ignoring a stream's state."""

    def forward(self, x: Tensor, state: State | None = None) -> Tensor:  # noqa: ARG002
        """Apply ELU to any shape."""
        return F.elu(x)


class ResidualBlock(nn.Module):
    """ELU, convolution of 3, ELU, convolution of 1, beside a convolution of 1."""

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

    def forward(self, x: Tensor, state: State | None = None) -> Tensor:
        """Map ``[B, C, T]`` to the same shape."""
        y = x
        for layer in self.block:
            y = layer(y, state)
        return self.shortcut(x, state) + y


class _Stack(nn.Module):
    """Layers in a row, under EnCodec's name ``model``."""

    def __init__(self, layers: Iterator[nn.Module]) -> None:
        super().__init__()
        self.model = nn.ModuleList(layers)

    def forward(self, x: Tensor, state: State | None = None) -> Tensor:
        for layer in self.model:
            x = layer(x, state)
        return x


def _encoder_layers(config: CodecConfig) -> Iterator[nn.Module]:
    channels, pad = config.filters, config.pad_mode
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
    channels, pad = config.filters * 2 ** len(config.ratios), config.pad_mode
    yield CausalConv(config.dimension, channels, 7, pad_mode=pad)
    yield ResidualLstm(channels, config.lstm_layers)
    for ratio in config.ratios:
        yield Elu()
        yield CausalConvTranspose(channels, channels // 2, ratio)
        channels //= 2
        yield ResidualBlock(channels, pad)
    yield Elu()
    yield CausalConv(channels, 1, 7, pad_mode=pad)


class Encodec(nn.Module):
    """Encode and decode speech; the weights are shared, a stream's state is not."""

    def __init__(self, config: CodecConfig) -> None:
        super().__init__()
        self.config = config
        self.encoder = _Stack(_encoder_layers(config))
        self.decoder = _Stack(_decoder_layers(config))
        self.quantizer = Quantizer(config)

    @torch.inference_mode()
    def encode(self, samples: Tensor) -> Tensor:
        """Return the codes of speech.

        Args:
            samples: ``[N]`` float in [-1, 1] at the config's sample rate.

        Returns:
            ``[T, K]`` int64, T = ceil(N / hop).

        Raises:
            ValueError: ``samples`` is empty or not of one dimension.
        """
        check_samples(samples)
        latent = self.encoder((samples * self.config.gain)[None, None])
        return self.quantizer.encode(latent[0].T)

    @torch.inference_mode()
    def decode(self, codes: Tensor) -> Tensor:
        """Return the speech of ``codes`` in one piece.

        Args:
            codes: ``[T, K']`` int64; fewer levels than the codec has give a rougher sound.

        Returns:
            ``[T * hop]`` float32.

        Raises:
            ValueError: The shape or an id is out of range.
        """
        check_codes(codes, self.config)
        return self._decode(codes, None)

    def stream(self) -> "DecoderStream":
        """Return a new stream: push codes, get the samples that they complete."""
        return DecoderStream(self)

    def _decode(self, codes: Tensor, state: State | None) -> Tensor:
        latent = self.quantizer.decode(codes).T[None]
        return self.decoder(latent, state)[0, 0] / self.config.gain


class DecoderStream:
    """One utterance decoded piece by piece; the pieces joined equal `Encodec.decode` of the whole.

    With reflect padding the first sample depends on the first 7 frames, so nothing comes out
    before they are in or the utterance is finished.
    """

    def __init__(self, codec: Encodec) -> None:
        self._codec = codec
        self._state: State = {}
        self._waiting: Tensor | None = None
        self._frames_needed = 7 if codec.config.pad_mode == "reflect" else 1

    @torch.inference_mode()
    def push(self, codes: Tensor) -> Tensor:
        """Take frames ``[T, K']`` and return the samples ``[N]`` that are now certain.

        Raises:
            ValueError: As `Encodec.decode`.
        """
        check_codes(codes, self._codec.config)
        if self._waiting is not None:
            codes = torch.cat([self._waiting, codes])
        if not self._state and len(codes) < self._frames_needed:
            self._waiting = codes
            return torch.zeros(0, device=codes.device)
        self._waiting = None
        return self._codec._decode(codes, self._state)

    @torch.inference_mode()
    def finish(self) -> Tensor:
        """Return the samples ``[N]`` still held back; the stream is then at its end."""
        if self._waiting is None:
            return torch.zeros(0)
        codes, self._waiting = self._waiting, None
        return self._codec._decode(codes, self._state)

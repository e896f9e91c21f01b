"""The base classes of codecs and decoders, and their streams, of which each has its own state."""

from abc import ABC, abstractmethod

import torch
from torch import Tensor, nn

from models.codecs.quantizer import Quantizer, check_codes
from models.codecs.streaming import DecoderState
from models.config import AnyCodecConfig, VocosConfig


class Decoder(nn.Module, ABC):
    """Decodes speech."""

    config: AnyCodecConfig | VocosConfig

    @abstractmethod
    def decode(self, codes: Tensor, state: DecoderState | None = None) -> Tensor:
        """Decode codes ``[T, K']``, where K' may be below K, to ``[T * hop]``.

        They are an utterance, or the next frames of a stream, whose state is brought up to date.
        """

    @property
    def first_frames(self) -> int:
        """How many frames must be known before there is a first sample."""
        return 1

    def stream(self) -> "CodecStream":
        """Return a new stream: push codes, get the samples that are complete."""
        return CodecStream(self)


class Codec(Decoder):
    """Encodes and decodes speech."""

    config: AnyCodecConfig
    quantizer: Quantizer

    @abstractmethod
    def encode(self, samples: Tensor, *, as_it_is: bool = False) -> Tensor:
        """Encode speech ``[N]`` in [-1, 1] to codes ``[T, K]`` int64; T = ceil(N / hop).

        What the recording lacks is restored before, if the codec can, unless ``as_it_is``.
        """

    @abstractmethod
    def sound(self, latent: Tensor, state: DecoderState | None = None) -> Tensor:
        """Return the samples ``[B, T * hop]`` of sums of codebook entries ``[B, T, D]``.

        They are the next frames of streams, whose state is brought up to date, or whole utterances.
        """

    @torch.inference_mode()
    def decode(self, codes: Tensor, state: DecoderState | None = None) -> Tensor:
        """Return samples; see `Decoder`."""
        check_codes(codes, self.config)
        return self.sound(self.quantizer.decode(codes)[None], state)[0]


class CodecStream:
    """Decodes one utterance in chunks, which joined equal `Decoder.decode` of the whole.

    No samples are returned before `Decoder.first_frames` are pushed or the stream is finished.
    """

    def __init__(self, decoder: Decoder) -> None:
        self._decoder = decoder
        self._state = DecoderState()
        self._pending: Tensor | None = None

    @torch.inference_mode()
    def push(self, codes: Tensor) -> Tensor:
        """Append frames ``[T, K']``; return the samples ``[N]`` that are complete."""
        check_codes(codes, self._decoder.config)
        if self._pending is not None:
            codes = torch.cat([self._pending, codes])
        if not self._state and len(codes) < self._decoder.first_frames:
            self._pending = codes
            return torch.zeros(0, device=codes.device)
        self._pending = None
        return self._decoder.decode(codes, self._state)

    def finish(self) -> Tensor:
        """Return the remaining samples ``[N]`` and end the stream."""
        if self._pending is None:
            return torch.zeros(0)
        codes = self._pending
        self._pending = None
        return self._decoder.decode(codes, self._state)

"""The base class of the codecs, and their streams, of which each has its own state."""

from abc import ABC, abstractmethod

import torch
from torch import Tensor, nn

from models.codecs.quantizer import Quantizer, check_codes
from models.codecs.streaming import DecoderState
from models.config import AnyCodecConfig


class Codec(nn.Module, ABC):
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

    @property
    def first_frames(self) -> int:
        """How many frames must be known before there is a first sample."""
        return 1

    @torch.inference_mode()
    def decode(self, codes: Tensor) -> Tensor:
        """Decode codes ``[T, K']`` of a whole utterance to ``[T * hop]``; K' may be below K."""
        check_codes(codes, self.config)
        return self.sound(self.quantizer.decode(codes)[None])[0]

    def stream(self) -> "CodecStream":
        """Return a new stream: push codes, get the samples that are complete."""
        return CodecStream(self)


class CodecStream:
    """Decodes one utterance in chunks, which joined equal `Codec.decode` of the whole.

    No samples are returned before `Codec.first_frames` are pushed or the stream is finished.
    """

    def __init__(self, codec: Codec) -> None:
        self._codec = codec
        self._state = DecoderState()
        self._pending: Tensor | None = None

    @torch.inference_mode()
    def push(self, codes: Tensor) -> Tensor:
        """Append frames ``[T, K']``; return the samples ``[N]`` that are complete."""
        check_codes(codes, self._codec.config)
        if self._pending is not None:
            codes = torch.cat([self._pending, codes])
        if not self._state and len(codes) < self._codec.first_frames:
            self._pending = codes
            return torch.zeros(0, device=codes.device)
        self._pending = None
        return self._decode(codes)

    @torch.inference_mode()
    def finish(self) -> Tensor:
        """Return the remaining samples ``[N]`` and end the stream."""
        if self._pending is None:
            return torch.zeros(0)
        codes, self._pending = self._pending, None
        return self._decode(codes)

    def _decode(self, codes: Tensor) -> Tensor:
        latent = self._codec.quantizer.decode(codes)[None]
        return self._codec.sound(latent, self._state)[0]

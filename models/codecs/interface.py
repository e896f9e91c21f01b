"""The protocols of a codec and its streams, of which each has its own state."""

from typing import Protocol

from torch import Tensor

from models.codecs.quantizer import Quantizer, QuantizerConfig
from models.codecs.streaming import DecoderState


class CodecShape(QuantizerConfig, Protocol):
    """The fields that all codec configurations have."""

    @property
    def sample_rate_hz(self) -> int:
        """Samples in a second."""

    @property
    def hop(self) -> int:
        """Samples in a frame."""

    @property
    def frame_rate_hz(self) -> float:
        """Frames in a second."""


class CodecStream(Protocol):
    """Decodes one utterance in chunks, which joined equal `Codec.decode` of the whole."""

    def push(self, codes: Tensor) -> Tensor:
        """Append frames ``[T, K']``; return the samples ``[N]`` that are complete.

        Raises:
            ValueError: As `Codec.decode`.
        """

    def finish(self) -> Tensor:
        """Return the remaining samples ``[N]`` and end the stream."""


class Codec(Protocol):
    """Encodes and decodes speech."""

    @property
    def config(self) -> CodecShape:
        """Its configuration."""

    @property
    def quantizer(self) -> Quantizer:
        """Its codebooks."""

    def encode(self, samples: Tensor) -> Tensor:
        """Encode samples ``[N]`` to codes ``[T, K]`` int64; T = ceil(N / hop).

        Raises:
            ValueError: ``samples`` is empty or not of one dimension.
        """

    def decode(self, codes: Tensor) -> Tensor:
        """Decode codes ``[T, K']`` of a whole utterance to samples ``[T * hop]`` float32.

        Raises:
            ValueError: The shape or an id is out of range.
        """

    def sound(self, latent: Tensor, state: DecoderState | None = None) -> Tensor:
        """Return the samples ``[B, T * hop]`` of sums of codebook entries ``[B, T, D]``.

        They are the next frames of streams, whose state is brought up to date, or whole utterances.
        """

    def stream(self) -> CodecStream:
        """Return a new stream."""

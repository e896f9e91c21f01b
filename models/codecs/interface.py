"""What the service asks of a codec, whatever its architecture: samples to codes and back.

`models.codecs.encodec` and `models.codecs.spectral` are those there are. Weights are shared by all
streams; what a stream remembers is its own.
"""

from typing import Protocol

from torch import Tensor

from models.codecs.quantizer import Quantizer, Sizes


class CodecShape(Sizes, Protocol):
    """What of a codec's config others may ask."""

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
    """One utterance decoded piece by piece; the pieces joined equal `Codec.decode` of the whole."""

    def push(self, codes: Tensor) -> Tensor:
        """Take frames ``[T, K']`` and return the samples ``[N]`` that are now certain.

        Raises:
            ValueError: As `Codec.decode`.
        """

    def finish(self) -> Tensor:
        """Return the samples ``[N]`` still held back; the stream is then at its end."""


class Codec(Protocol):
    """Encodes and decodes speech."""

    @property
    def config(self) -> CodecShape:
        """Its shape."""

    @property
    def quantizer(self) -> Quantizer:
        """Its codebooks."""

    def encode(self, samples: Tensor) -> Tensor:
        """Return the codes ``[T, K]`` int64 of samples ``[N]``; T = ceil(N / hop).

        Raises:
            ValueError: ``samples`` is empty or not of one dimension.
        """

    def decode(self, codes: Tensor) -> Tensor:
        """Return the speech ``[T * hop]`` float32 of codes ``[T, K']`` in one piece.

        Raises:
            ValueError: The shape or an id is out of range.
        """

    def stream(self) -> CodecStream:
        """Return a new stream."""

"""What the codec remembers of utterances under way, for recorded functions that decode chunks."""

import torch
from torch import Tensor

from models.checkpoints import SpeechModel
from models.codecs.streaming import StreamTable

STREAMS = 256
"""Utterances that may be under way; what the codec remembers of one is some 40 kB."""


class CodecStreams:
    """Streams of a model's codec, each a row of a table. One thread only.

    Attributes:
        unused: A row that nobody uses, for what is padding.
    """

    @torch.inference_mode()
    def __init__(self, speech: SpeechModel, streams: int = STREAMS) -> None:
        """Allocate all rows.

        Args:
            speech: Whose codec it is.
            streams: How many may be taken.
        """
        codec = self._codec = speech.codec
        levels = speech.model.config.levels
        self._codebooks = codec.quantizer.codebooks[:levels]
        self._every = torch.arange(levels, device=self._codebooks.device)
        frames = speech.model.config.block_frames
        latent = codec.quantizer.codebooks.new_zeros(1, frames, codec.config.dimension)
        self._table = StreamTable(codec, latent, streams + 1)
        self._free = list(range(streams))
        self.unused = streams

    @property
    def free(self) -> int:
        """How many streams can be taken."""
        return len(self._free)

    def take(self) -> int | None:
        """Return a row; None if all are taken."""
        return self._free.pop() if self._free else None

    def give(self, stream: int) -> None:
        """Take back a row."""
        self._free.append(stream)

    def sound(self, codes: Tensor, heard: Tensor, streams: Tensor, begins: Tensor) -> Tensor:
        """Return the samples ``[B, N]`` of the next frames of some streams, to be recorded.

        Args:
            codes: ``[B, T, K]`` int64.
            heard: ``[B, T or 1, K]`` bool, those that count.
            streams: ``[B]`` int64, the row of each.
            begins: ``[B]`` bool, those that begin with these frames.
        """
        entries = self._codebooks[self._every, codes].masked_fill(~heard[..., None], 0.0)
        state = self._table.read(streams, begins)
        samples = self._codec.sound(entries.sum(2), state)
        self._table.write(streams, state)
        return samples

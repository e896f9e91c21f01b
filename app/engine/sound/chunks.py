"""Where an utterance is cut into chunks: a function of the frame index alone.

A chunk is what the finer levels and the codec take at a time. The first ones are short, so that
something is heard early, the later ones longer, so that less is computed a frame. Speech that is
wanted whole is made in the same chunks: products of other shapes would round otherwise, and a
rounding can change a code.
"""

import sys
from itertools import chain, repeat

import torch
from torch import Tensor

_BLOCKS = (1, 1, 2, 3)  # of the first chunks; 0.2, 0.2, 0.4 and 0.6 s of the usual 15 frames
_LATER_BLOCKS = 4


class Chunks:
    """Frames of one utterance, cut into chunks while they come."""

    def __init__(self, block_frames: int | None) -> None:
        """Begin before the first frame.

        Args:
            block_frames: Frames of a block; every chunk but the last is a number of whole ones.
                None: the whole utterance is one chunk.
        """
        blocks = chain(_BLOCKS, repeat(_LATER_BLOCKS))
        self._lengths = (count * (block_frames or sys.maxsize) for count in blocks)
        self._length = next(self._lengths)
        self._waiting: list[Tensor] = []
        self._count = 0  # frames that wait

    def push(self, frames: Tensor, *, ended: bool = False) -> list[Tensor]:
        """Take the next frames and return the chunks that they complete.

        Args:
            frames: ``[n, ...]``, any number.
            ended: None will follow: the last chunk is what is left.
        """
        self._waiting.append(frames)
        self._count += len(frames)
        if self._count < self._length and not ended:
            return []
        frames, chunks = torch.cat(self._waiting), []
        while len(frames) >= self._length:
            # A chunk of its own memory: where it lies must not depend on how the frames came.
            chunks.append(frames[: self._length].clone())
            frames = frames[self._length :]
            self._length = next(self._lengths)
        if ended and len(frames):
            chunks.append(frames.clone())
            frames = frames[:0]
        self._waiting, self._count = [frames], len(frames)
        return chunks

"""The input of the language model before the response: embeddings, positions and mask ranks."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gpu.transfers import to_device

MARKS: Final = 6
"""Positions beside those of a text's symbols, prompt and frames: language, level, separators."""


@dataclass(frozen=True)
class Prefix:
    """Everything before the response: text, language, level and voice prompt.

    What is on the device is made when it is asked for first: a graph needs the numbers alone.
    """

    level: int
    # ``[3, S]`` int64 of each position: its row of `Valle.symbols` and, behind those, of the
    # prompt; its position id; and its rank of the block-causal mask, 0 up to the prompt and 1 for
    # phonemes
    numbers: NDArray[np.int64]
    embed: Callable[[int], Tensor]  # gives the embeddings [S, D] as input of a level
    device: torch.device
    prompt: Tensor | None = None  # [Tp, K] int64 codes of the voice
    response_start: int = 0  # position of response frame 0; not 0 where positions count through
    # length of the leading part that is the same for every text and attends to nothing after it, so
    # that its keys and values can be cached across texts
    shared: int = 0
    text_start: int = 0  # index of the first phoneme

    def __len__(self) -> int:
        return self.numbers.shape[1]

    def __getitem__(self, part: slice) -> "Prefix":
        """Return a slice of the positions, with ``shared`` and ``text_start`` reset to 0."""
        return replace(
            self, numbers=self.numbers[:, part], embed=lambda level: self._embedded(level)[part],
            shared=0, text_start=0,
        )  # fmt: skip

    def at_level(self, level: int) -> "Prefix":
        """Return the same of another of the NAR levels; it differs in the mark of its level."""
        numbers = self.numbers.copy()
        numbers[0, numbers[0] == 1 + self.level] = 1 + level
        return replace(self, level=level, numbers=numbers)

    @cached_property
    def embeddings(self) -> Tensor:
        """``[S, D]``."""
        return self.embed(self.level)

    def _embedded(self, level: int) -> Tensor:
        """Return the embeddings as input of a level, which are kept of its own."""
        return self.embeddings if level == self.level else self.embed(level)

    @property
    def positions(self) -> Tensor:
        """``[S]`` int64 position ids."""
        return self._on_device[1]

    @property
    def blocks(self) -> Tensor:
        """``[S]`` int64 ranks of the block-causal mask."""
        return self._on_device[2]

    @cached_property
    def _on_device(self) -> Tensor:
        return to_device(self.numbers, self.device)

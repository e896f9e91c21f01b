"""How float32 rows are batched on a CPU so that a row's bits do not depend on its batch.

The matrix library picks a different kernel, which sums in another order, for one row than for
nine; which counts share a kernel depends on the processor. So strategies are tried on the machine,
with the model's own matrices, in a fixed order, cheapest first: a choice by measured time could
differ between two starts and change the speech of a seed.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor
from torch.nn import functional as F

RowFunction = Callable[[Tensor], Tensor]
"""Maps rows ``[B, D]`` to ``[B, E]``, each row independent of the others but for rounding."""

ROW_COUNTS: Final = (*range(1, 17), 20, 24, 32)
"""Batch sizes that are tried; batches are no larger in practice, or behave as the largest."""


@dataclass(frozen=True, slots=True)
class Batching:
    """A strategy for computing rows in batches."""

    pad_to: int = 1  # batches of fewer rows are padded with zeros to this many
    block_rows: int | None = None  # larger batches are cut into blocks of this many; None: not
    invariant: bool = True  # whether a row was found to have the same bits in every batch

    def __str__(self) -> str:
        """Return the strategy in words, for `GET /health`."""
        if not self.invariant:
            return "no way found in which a row has the same bits in every batch"
        if self.block_rows == 1:
            return "row by row"
        if self.block_rows is not None:
            return f"in blocks of {self.block_rows} rows"
        return "as they come" if self.pad_to == 1 else f"padded to {self.pad_to} rows"

    def pad(self, x: Tensor) -> Tensor:
        """Append rows of zeros to ``[B, D]``: ``[max(B, pad_to), D]``, or ``x`` itself."""
        missing = self.pad_to - len(x)
        return F.pad(x, (0, 0, 0, missing)) if missing > 0 else x

    def blocks(self, count: int) -> Sequence[slice]:
        """Return the slices of ``count`` rows that are computed together."""
        size = self.block_rows or max(1, count)
        return [slice(start, start + size) for start in range(0, count, size)]

    def run(self, function: RowFunction, x: Tensor) -> Tensor:
        """Return ``function(x)`` ``[B, E]``, computed in padded blocks."""
        parts = [x[part] for part in self.blocks(len(x))]
        computed = [function(self.pad(part))[: len(part)] for part in parts]
        return computed[0] if len(computed) == 1 else torch.cat(computed)


UNPADDED: Final = Batching()
STRATEGIES: Final = (
    UNPADDED,
    Batching(pad_to=4),
    Batching(pad_to=8),
    Batching(pad_to=4, block_rows=4),
    Batching(pad_to=8, block_rows=8),
    Batching(pad_to=1, block_rows=1),
)


@torch.inference_mode()
def measure_batching(
    layers: Sequence[tuple[RowFunction, int]], dtype: torch.dtype = torch.float32
) -> Batching:
    """Return the first strategy under which every layer is invariant, else one that says so.

    Args:
        layers: Functions of rows, each with the width ``D`` of its input.
        dtype: Of the rows.
    """
    generator = torch.Generator().manual_seed(0)
    inputs = [
        (function, torch.randn(ROW_COUNTS[-1], width, generator=generator).to(dtype))
        for function, width in layers
    ]
    for strategy in STRATEGIES:
        if all(is_invariant(strategy, function, x) for function, x in inputs):
            return strategy
    return Batching(pad_to=1, block_rows=1, invariant=False)


def is_invariant(strategy: Batching, function: RowFunction, x: Tensor) -> bool:
    """Return whether ``[max(ROW_COUNTS), D]`` gives the same bits in batches of its ends."""
    whole = strategy.run(function, x)
    for count in ROW_COUNTS:
        for part in (slice(0, count), slice(len(x) - count, len(x))):
            if not torch.equal(strategy.run(function, x[part].contiguous()), whole[part]):
                return False
    return True

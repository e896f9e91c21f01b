"""How few rows of float32 are computed so that each has the same bits in every batch.

A CPU's library takes another kernel, which sums in another order, for one row than for nine; which
counts are alike depends on the processor. So a way of batching is measured on the machine, on the
model's own matrices: rows as they come; few rows padded with rows of zeros; rows in blocks of one
size; row by row. The first of these that is invariant is used. Their order is fixed, by what they
cost: a choice by time could differ between two starts, and with it the speech of a seed.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor
from torch.nn import functional as F

Rows = Callable[[Tensor], Tensor]
"""Maps rows ``[B, D]`` to ``[B, E]``, each by itself but for rounding."""

COUNTS: Final = (*range(1, 17), 20, 24, 32)
"""Rows that are tried together; a batch has no more in practice, or is as the largest."""


@dataclass(frozen=True, slots=True)
class Batching:
    """A way of computing rows.

    Attributes:
        least: Fewer rows are padded with zeros to so many.
        most: More rows are cut into blocks of so many; None: they are not.
        invariant: Whether rows were found to have the same bits in every batch.
    """

    least: int = 1
    most: int | None = None
    invariant: bool = True

    def __str__(self) -> str:
        """Return it in words, as `GET /health` tells it."""
        if not self.invariant:
            return "no way found in which a row has the same bits in every batch"
        if self.most == 1:
            return "row by row"
        if self.most is not None:
            return f"in blocks of {self.most} rows"
        return "as they come" if self.least == 1 else f"padded to {self.least} rows"

    def pad(self, x: Tensor) -> Tensor:
        """Add rows of zeros to ``[B, D]``: ``[max(B, least), D]``, or ``x`` itself."""
        missing = self.least - len(x)
        return F.pad(x, (0, 0, 0, missing)) if missing > 0 else x

    def blocks(self, count: int) -> Sequence[slice]:
        """Return the parts of ``count`` rows that are computed together."""
        size = self.most or max(1, count)
        return [slice(start, start + size) for start in range(0, count, size)]

    def run(self, rows: Rows, x: Tensor) -> Tensor:
        """Return ``rows(x)`` ``[B, E]``, computed in this way."""
        parts = [x[part] for part in self.blocks(len(x))]
        computed = [rows(self.pad(part))[: len(part)] for part in parts]
        return computed[0] if len(computed) == 1 else torch.cat(computed)


AS_THEY_COME: Final = Batching()
WAYS: Final = (
    AS_THEY_COME,
    Batching(least=4),
    Batching(least=8),
    Batching(least=4, most=4),
    Batching(least=8, most=8),
    Batching(least=1, most=1),
)


@torch.inference_mode()
def measure(
    layers: Sequence[tuple[Rows, int]],
    dtype: torch.dtype = torch.float32,
    ways: Sequence[Batching] = WAYS,
) -> Batching:
    """Return the first way in which a row of every layer has the same bits in every batch.

    Args:
        layers: What maps rows, each with the width ``D`` of its rows.
        dtype: Of the rows.
        ways: What is tried, in this order.

    Returns:
        The way; row by row, and not `invariant`, where none is.
    """
    generator = torch.Generator().manual_seed(0)
    tried = [
        (rows, torch.randn(COUNTS[-1], width, generator=generator).to(dtype))
        for rows, width in layers
    ]
    for way in ways:
        if all(is_invariant(way, rows, x) for rows, x in tried):
            return way
    return Batching(least=1, most=1, invariant=False)


def is_invariant(way: Batching, rows: Rows, x: Tensor) -> bool:
    """Return whether the rows of ``x`` ``[max(COUNTS), D]`` have the same bits in smaller batches.

    Each count is tried from the first row on, and up to the last one.
    """
    whole = way.run(rows, x)
    for count in COUNTS:
        for part in (slice(0, count), slice(len(x) - count, len(x))):
            if not torch.equal(way.run(rows, x[part].contiguous()), whole[part]):
                return False
    return True

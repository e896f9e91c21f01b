"""What passes over a stack return of some of its layers, beside the last hidden states."""

from collections.abc import Sequence
from typing import Final, NamedTuple

import torch
from torch import Tensor


class Taps(NamedTuple):
    """Layers of a stack, numbered from 0."""

    queries: Sequence[int] = ()  # whose queries are returned, negative ones from the last
    outputs: Sequence[int] = ()  # whose outputs are, ascending

    def width(self, width: int) -> int:
        """Return the width of what `with_outputs` returns for a stack of a width."""
        return width * (1 + len(self.outputs))


NO_TAPS: Final = Taps()


def chosen(queries: Sequence[Tensor], layers: Sequence[int]) -> Tensor:
    """Return ``[L, S, heads, head_dim]``, the queries of some of all layers."""
    if not layers:
        return queries[-1][None][:0]
    if len(layers) == 1:  # no copy, which would be a kernel more of each captured step
        return queries[layers[0]][None]
    return torch.stack([queries[layer] for layer in layers])


def with_outputs(hidden: Tensor, outputs: Sequence[Tensor]) -> Tensor:
    """Return ``[S, (1 + n) * D]``: hidden states, and behind them outputs of n layers."""
    return torch.cat([hidden, *outputs], -1) if outputs else hidden

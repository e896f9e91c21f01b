"""What the layers of a codec remember of streams: of one, or of some rows of a table of many."""

from collections.abc import Iterator
from math import prod
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

if TYPE_CHECKING:
    from models.codecs.interface import Codec


class DecoderState(dict[nn.Module, Tensor]):
    """What streams remember, ``[B, ...]`` by the layer that will ask for it.

    A layer that is not there has no past in any of the streams: it takes its input as a beginning.
    """

    # [B] bool, the streams that have no past although every layer is there: theirs is 0, and layers
    # that begin otherwise look at this. None: all have one
    begins: Tensor | None = None

    def past(self, layer: nn.Module, fresh: Tensor) -> Tensor:
        """Return what a layer remembers ``[B, ...]``, and ``fresh`` of streams without a past."""
        before = self.get(layer)
        if before is None or self.begins is None:
            return fresh if before is None else before
        return torch.where(self.begins.view(-1, *[1] * (fresh.ndim - 1)), fresh, before)


class StreamTable:
    """The states of many streams: a row each, in memory that stays where it is.

    Reading and writing rows takes a few operators of fixed shapes, so they can be captured.
    ``latent``, any beginning ``[1, T, D]`` of a stream, tells what there is to remember.
    """

    @torch.inference_mode()
    def __init__(self, codec: "Codec", latent: Tensor, streams: int) -> None:
        state = DecoderState()
        codec.sound(latent, state)
        self._layers = {layer: (one.dtype, one.shape[1:]) for layer, one in state.items()}
        self._tables = {
            dtype: latent.new_zeros(streams, sum(self._widths(dtype)), dtype=dtype)
            for dtype in {one.dtype for one in state.values()}
        }

    def read(self, rows: Tensor, begins: Tensor) -> DecoderState:
        """Return what rows ``[B]`` remember; of those that begin, nothing."""
        parts: dict[torch.dtype, Iterator[Tensor]] = {}
        for dtype, table in self._tables.items():
            found = table.index_select(0, rows).masked_fill(begins[:, None], 0)
            parts[dtype] = iter(torch.split(found, self._widths(dtype), 1))
        state = DecoderState({
            layer: next(parts[dtype]).view(len(rows), *shape)
            for layer, (dtype, shape) in self._layers.items()
        })
        state.begins = begins
        return state

    def write(self, rows: Tensor, state: DecoderState) -> None:
        """Store what some streams remember now; ``rows`` as in `read`."""
        for dtype, table in self._tables.items():
            own = [
                state[layer].flatten(1) for layer, one in self._layers.items() if one[0] == dtype
            ]
            table.index_copy_(0, rows, torch.cat(own, 1))

    def _widths(self, dtype: torch.dtype) -> list[int]:
        return [prod(shape) for own, shape in self._layers.values() if own == dtype]

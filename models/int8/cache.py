"""The KV cache of an int8 stack: integers of 8 bits with one scale a position and head.

A quarter of the bytes of float32, in the tile layout of `models.int8.product`, so that attention is
two integer products. Rounding is that of `models.int8.linear`.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cpu.arrays import Floats, Uint8s
from models.config import ModelConfig
from models.int8.processors import QUAD
from models.int8.product import COLUMNS, ZERO_POINT
from models.stack.slot_cache import Held, SlotCache

BLOCK: Final = 64  # positions; attention weights within one block of values share a scale


class Int8Layer(NamedTuple):
    """Keys and values of one layer; T is the capacity rounded up to whole blocks."""

    # [slots, kv_heads, T / 32, head_dim / 4, 32, 4], tiles whose columns are positions
    keys: Uint8s
    key_scales: Floats  # [slots, kv_heads, T]
    # [slots, kv_heads, T / 64, head_dim / 32, 16, 32, 4], tiles of each block, whose columns are
    # dimensions
    values: Uint8s
    value_scales: Floats  # [slots, kv_heads, T]


class Int8Cache(SlotCache):
    """Int8 keys and values; written and read by `models.int8.attention`."""

    def __init__(self, config: ModelConfig, slots: int, max_length: int) -> None:
        super().__init__(slots, max_length)
        self._head_dim = config.head_dim
        blocks = -(-max_length // BLOCK)
        quads = -(-config.head_dim // QUAD)
        tiles = -(-config.head_dim // COLUMNS)
        head = (slots, config.kv_heads)
        keys = (*head, blocks * (BLOCK // COLUMNS), quads, COLUMNS, QUAD)
        values = (*head, blocks, tiles, BLOCK // QUAD, COLUMNS, QUAD)
        scales = (*head, blocks * BLOCK)
        self.layers = [
            Int8Layer(
                np.zeros(keys, np.uint8),
                np.zeros(scales, np.float32),
                np.zeros(values, np.uint8),
                np.zeros(scales, np.float32),
            )
            for _ in range(config.layers)
        ]

    @property
    def bytes(self) -> int:
        """Memory allocated for all keys, values and scales, used or not."""
        return sum(array.nbytes for layer in self.layers for array in layer)

    def keys_of(self, layer: int, slot: int) -> Tensor:
        """Return dequantised keys ``[kv_heads, length, head_dim]`` float32."""
        length = self.lengths[slot]
        (tiles, scales, _, _) = self.layers[layer]
        used = tiles[slot, :, : -(-length // COLUMNS)]
        rows = used.transpose(0, 1, 3, 2, 4)  # [kv_heads, tile, position, quad, neighbour]
        integers = rows.reshape(len(rows), -1, rows.shape[3] * QUAD)
        keys = integers[:, :length, : self._head_dim].astype(np.float32) - ZERO_POINT
        return torch.from_numpy(keys * scales[slot, :, :length, None])

    def _copy(self, slot: int, source: Self, source_slot: int, begin: int, end: int) -> None:
        blocks = slice(begin // BLOCK, -(-end // BLOCK))
        for own, other in zip(self.layers, source.layers, strict=True):
            for target, given in zip(_by_block(own), _by_block(other), strict=True):
                target[slot, :, blocks] = given[source_slot, :, blocks]

    def lift(self, slot: int, begin: int, end: int) -> Held:
        """Return a copy of some positions of a slot."""
        return Held(
            end - begin,
            [array[place] for array, place in self._places(slot, begin, end)],
        )

    def _lay(self, slot: int, begin: int, held: Held) -> None:
        places = self._places(slot, begin, begin + held.positions)
        for (array, place), given in zip(places, held.arrays, strict=True):
            array[place] = given

    def _places(self, slot: int, begin: int, end: int) -> Iterator[tuple[NDArray[Any], Any]]:
        """Yield each array with the index of some positions; an array is copied by it."""
        every = slice(None)
        at = np.arange(begin, end)
        keys = (slot, every, at // COLUMNS, every, at % COLUMNS)
        values = (slot, every, at // BLOCK, every, at % BLOCK // QUAD, every, at % QUAD)
        for layer in self.layers:
            yield layer.keys, keys
            yield layer.key_scales, (slot, every, at)
            yield layer.values, values
            yield layer.value_scales, (slot, every, at)


def _by_block(layer: Int8Layer) -> Sequence[NDArray[Any]]:
    """Return a layer's arrays as views ``[slots, kv_heads, blocks, -1]``."""
    arrays: Sequence[NDArray[Any]] = layer
    blocks = layer.values.shape[2]
    return [one.reshape(*one.shape[:2], blocks, -1) for one in arrays]

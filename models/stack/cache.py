"""The KV cache of a float stack: keys and values of a layer in one tensor, allocated once."""

from collections.abc import Sequence
from typing import Self

import torch
from torch import Tensor

from models.config import ModelConfig
from models.stack.slot_cache import Held, SlotCache


class KVCache(SlotCache):
    """A tensor of keys, rotated, and of values a layer: ``[slots, kv_heads, length, head_dim]``."""

    def __init__(
        self,
        config: ModelConfig,
        slots: int,
        max_length: int,
        *,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
    ) -> None:
        super().__init__(slots, max_length)
        shape = (slots, config.kv_heads, max_length, config.head_dim)
        self.keys, self.values = (
            [torch.zeros(shape, dtype=dtype, device=device) for _ in range(config.layers)]
            for _ in range(2)
        )
        # The views that a step writes to and reads from, made once.
        both = [*zip(self.keys, self.values, strict=True)]
        self._flat = [(k.view(-1, shape[-1]), v.view(-1, shape[-1])) for k, v in both]
        self._slots = [[*zip(torch.split(k, 1), torch.split(v, 1), strict=True)] for k, v in both]

    @property
    def bytes(self) -> int:
        """Memory allocated for all keys and values, used or not."""
        return sum(tensor.nbytes for tensor in (*self.keys, *self.values))

    def write(self, layer: int, slot: int, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Write rotated keys and values ``[kv_heads, S, head_dim]`` behind a slot's length.

        Returns:
            Views ``[1, kv_heads, length + S, head_dim]``. The length itself is changed only by
            `advance`, once every layer has written.
        """
        self.check_room(slot, keys.shape[1])
        start = self.lengths[slot]
        end = start + keys.shape[1]
        cached_keys, cached_values = self._slots[layer][slot]
        cached_keys[0, :, start:end] = keys
        cached_values[0, :, start:end] = values
        return cached_keys[:, :, :end], cached_values[:, :, :end]

    def grow(self, slots: Sequence[int]) -> Tensor:
        """Lengthen several slots by one position; returns ``[B * kv_heads]`` indices for `put`."""
        for slot in slots:
            self.check_room(slot, 1)
        _, heads, room, _ = self.keys[0].shape
        places = [
            (slot * heads + head) * room + self.lengths[slot]
            for slot in slots
            for head in range(heads)
        ]
        for slot in slots:
            self.lengths[slot] += 1
        return torch.tensor(places, device=self.keys[0].device)

    def put(self, layer: int, places: Tensor, keys: Tensor, values: Tensor) -> None:
        """Write one position ``[B, kv_heads, head_dim]`` of several slots, as `grow` told where."""
        flat_keys, flat_values = self._flat[layer]
        flat_keys.index_copy_(0, places, keys.flatten(0, 1))
        flat_values.index_copy_(0, places, values.flatten(0, 1))

    def rows(self, layer: int, slot: int) -> tuple[Tensor, Tensor]:
        """Return views ``[1, kv_heads, length, head_dim]`` of a slot's keys and values."""
        keys, values = self._slots[layer][slot]
        return keys.narrow(2, 0, self.lengths[slot]), values.narrow(2, 0, self.lengths[slot])

    def keys_of(self, layer: int, slot: int) -> Tensor:
        """Return a view ``[kv_heads, length, head_dim]``."""
        return self.rows(layer, slot)[0][0]

    def _copy(self, slot: int, source: Self, source_slot: int, begin: int, end: int) -> None:
        for own, other in ((self.keys, source.keys), (self.values, source.values)):
            for target, given in zip(own, other, strict=True):
                target[slot, :, begin:end] = given[source_slot, :, begin:end]

    def lift(self, slot: int, begin: int, end: int) -> Held:
        """Return a copy of some positions of a slot."""
        both = (*self.keys, *self.values)
        return Held(end - begin, [one[slot, :, begin:end].clone() for one in both])

    def _lay(self, slot: int, begin: int, held: Held) -> None:
        for target, given in zip((*self.keys, *self.values), held.arrays, strict=True):
            target[slot, :, begin : begin + held.positions] = given

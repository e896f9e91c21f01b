"""The keys and values of every slot, in tensors that never move or grow."""

from collections.abc import Iterator, Sequence
from typing import Self

import torch
from torch import Tensor

from models.config import ModelConfig
from models.stack.slots import Slots


class KVCache(Slots):
    """One K and one V tensor a layer, ``[slots, kv_heads, max_length, head_dim]``.

    Attributes:
        keys: A tensor a layer.
        values: A tensor a layer.
    """

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
        self.keys = [torch.zeros(shape, dtype=dtype, device=device) for _ in range(config.layers)]
        self.values = [torch.zeros(shape, dtype=dtype, device=device) for _ in range(config.layers)]
        # What a step writes to and reads from, so that it need not cut them out each time.
        self._flat = [(k.view(-1, shape[-1]), v.view(-1, shape[-1])) for k, v in self._layers()]
        self._slots = [
            list(zip(torch.split(k, 1), torch.split(v, 1), strict=True)) for k, v in self._layers()
        ]

    def _layers(self) -> Iterator[tuple[Tensor, Tensor]]:
        return zip(self.keys, self.values, strict=True)

    @property
    def bytes(self) -> int:
        """Memory of all keys and values, used or not."""
        return sum(tensor.nbytes for tensor in (*self.keys, *self.values))

    def write(self, layer: int, slot: int, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Put new rows after the slot's length and return all rows up to and with them.

        Args:
            layer: Which layer's tensors.
            slot: Which row.
            keys: ``[kv_heads, S, head_dim]``, already rotated.
            values: ``[kv_heads, S, head_dim]``.

        Returns:
            Views ``[kv_heads, length + S, head_dim]`` of keys and values. The length itself grows
            only by `advance`, once every layer has written.

        Raises:
            ValueError: The slot is full.
        """
        self.check_room(slot, keys.shape[1])
        start = self.lengths[slot]
        end = start + keys.shape[1]
        cached_keys, cached_values = self.keys[layer][slot], self.values[layer][slot]
        cached_keys[:, start:end] = keys
        cached_values[:, start:end] = values
        return cached_keys[:, :end], cached_values[:, :end]

    def grow(self, slots: Sequence[int]) -> Tensor:
        """Make room for one more row of each of several slots, at the end of its rows.

        Returns:
            ``[B * kv_heads]`` int64: where `put` is to write them.

        Raises:
            ValueError: A slot is full; none has grown.
        """
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
        """Write one row of several slots, all in one operation.

        Args:
            layer: Which layer's tensors.
            places: From `grow`.
            keys: ``[B, kv_heads, head_dim]``, already rotated.
            values: ``[B, kv_heads, head_dim]``.
        """
        flat_keys, flat_values = self._flat[layer]
        flat_keys.index_copy_(0, places, keys.flatten(0, 1))
        flat_values.index_copy_(0, places, values.flatten(0, 1))

    def rows(self, layer: int, slot: int) -> tuple[Tensor, Tensor]:
        """Views ``[1, kv_heads, length, head_dim]`` of the keys and values that a slot holds."""
        keys, values = self._slots[layer][slot]
        return keys.narrow(2, 0, self.lengths[slot]), values.narrow(2, 0, self.lengths[slot])

    def keys_of(self, layer: int, slot: int) -> Tensor:
        """Return a view ``[kv_heads, length, head_dim]``."""
        return self.rows(layer, slot)[0][0]

    def _copy(self, slot: int, source: Self, source_slot: int, begin: int, end: int) -> None:
        for own, others in ((self.keys, source.keys), (self.values, source.values)):
            for to, given in zip(own, others, strict=True):
                to[slot, :, begin:end] = given[source_slot, :, begin:end]

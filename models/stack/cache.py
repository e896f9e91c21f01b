"""The KV cache of a float stack: keys and values of a layer in one tensor, allocated once."""

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from typing import ClassVar

import torch
from torch import Tensor

from models.config import ModelConfig
from models.stack.slot_cache import SlotCache


class FloatCache(SlotCache):
    """Keys and values of a float stack.

    Attributes:
        finite: Whether only finite keys and values are stored, with 0 for others: a recording
            reads positions past a slot's length, weighted 0, and a masked NaN is still a NaN.
    """

    finite: ClassVar = False

    @abstractmethod
    def part(self, layer: int, slot: int, begin: int, end: int) -> tuple[Tensor, Tensor]:
        """Return keys and values ``[kv_heads, end - begin, head_dim]`` of some positions."""

    @abstractmethod
    def write(self, layer: int, slot: int, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Write new positions after a slot's length; return all positions including them.

        Args:
            layer: Index of the layer.
            slot: Index of the slot.
            keys: ``[kv_heads, S, head_dim]``, already rotated.
            values: ``[kv_heads, S, head_dim]``.

        Returns:
            Keys and values ``[kv_heads, length + S, head_dim]``. The length itself is
            changed only by `advance`, once every layer has written.

        Raises:
            ValueError: The slot is full.
        """


class KVCache(FloatCache):
    """Keys and values ``[slots, kv_heads, max_length, head_dim]``, one tensor of each a layer.

    Attributes:
        keys: A tensor a layer, already rotated.
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
        self.keys, self.values = (
            [torch.zeros(shape, dtype=dtype, device=device) for _ in range(config.layers)]
            for _ in range(2)
        )
        # The views that a step writes to and reads from, made once.
        self._flat = [(k.view(-1, shape[-1]), v.view(-1, shape[-1])) for k, v in self._layers()]
        self._slots = [
            list(zip(torch.split(k, 1), torch.split(v, 1), strict=True)) for k, v in self._layers()
        ]

    def _layers(self) -> Iterator[tuple[Tensor, Tensor]]:
        return zip(self.keys, self.values, strict=True)

    @property
    def bytes(self) -> int:
        """Memory allocated for all keys and values, used or not."""
        return sum(tensor.nbytes for tensor in (*self.keys, *self.values))

    def write(self, layer: int, slot: int, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Write new positions after a slot's length; see `FloatCache.write`.

        Returns:
            Views, not copies.
        """
        self.check_room(slot, keys.shape[1])
        start = self.lengths[slot]
        end = start + keys.shape[1]
        cached_keys, cached_values = self.keys[layer][slot], self.values[layer][slot]
        cached_keys[:, start:end] = keys
        cached_values[:, start:end] = values
        return cached_keys[:, :end], cached_values[:, :end]

    def grow(self, slots: Sequence[int]) -> Tensor:
        """Lengthen several slots by one position.

        Returns:
            ``[B * kv_heads]`` int64: the flat indices for `put`.

        Raises:
            ValueError: A slot is full; no slot has grown.
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
        """Write one position of several slots in one operation.

        Args:
            layer: Index of the layer.
            places: Flat indices from `grow`.
            keys: ``[B, kv_heads, head_dim]``, already rotated.
            values: ``[B, kv_heads, head_dim]``.
        """
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

    def part(self, layer: int, slot: int, begin: int, end: int) -> tuple[Tensor, Tensor]:
        """Return views of some positions; see `FloatCache.part`."""
        return self.keys[layer][slot, :, begin:end], self.values[layer][slot, :, begin:end]

    def _copy(self, slot: int, source: FloatCache, source_slot: int, begin: int, end: int) -> None:
        for layer, (keys, values) in enumerate(self._layers()):
            given = source.part(layer, source_slot, begin, end)
            keys[slot, :, begin:end], values[slot, :, begin:end] = given

"""The keys and values of every slot, in tensors that never move or grow.

A slot is one sequence being decoded. Rewinding shortens its length: rotary keys are stored rotated
by absolute position, so what remains stays valid, and the stale tail is overwritten later.
"""

from collections.abc import Iterator, Sequence
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from models.config import ModelConfig


class KVCache:
    """One K and one V tensor a layer, ``[slots, kv_heads, max_length, head_dim]``.

    Attributes:
        keys: A tensor a layer.
        values: A tensor a layer.
        lengths: Positions in use, a number a slot. They live on the host, where the loop that
            extends a slot always knows them, so that no step waits for a device.
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
        shape = (slots, config.kv_heads, max_length, config.head_dim)
        self.keys = [torch.zeros(shape, dtype=dtype, device=device) for _ in range(config.layers)]
        self.values = [torch.zeros(shape, dtype=dtype, device=device) for _ in range(config.layers)]
        # What a step writes to and reads from, so that it need not cut them out each time.
        self._flat = [(k.view(-1, shape[-1]), v.view(-1, shape[-1])) for k, v in self._layers()]
        self._slots = [
            list(zip(torch.split(k, 1), torch.split(v, 1), strict=True)) for k, v in self._layers()
        ]
        self.lengths = [0] * slots
        self.max_length = max_length

    def _layers(self) -> Iterator[tuple[Tensor, Tensor]]:
        return zip(self.keys, self.values, strict=True)

    @property
    def bytes(self) -> int:
        """Memory of all keys and values, used or not."""
        return sum(tensor.nbytes for tensor in (*self.keys, *self.values))

    @cached_property
    def bits(self) -> list[tuple[NDArray[np.uint16], NDArray[np.uint16]]]:
        """The bits of each layer's keys and values, in the same memory.

        Raises:
            ValueError: They are not bfloat16 on a CPU.
        """
        if self.keys[0].dtype != torch.bfloat16 or not self.keys[0].is_cpu:
            raise ValueError("integers need a cache of bfloat16 on a CPU: see Valle.new_cache")
        return [
            (keys.view(torch.uint16).numpy(), values.view(torch.uint16).numpy())
            for keys, values in self._layers()
        ]

    def check_room(self, slot: int, count: int) -> None:
        """Hold a slot to its room.

        Raises:
            ValueError: There is none for ``count`` more positions.
        """
        end = self.lengths[slot] + count
        if end > self.max_length:
            raise ValueError(f"slot {slot} holds {self.max_length} positions, {end} asked for")

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

    def load(self, slot: int, source: "KVCache", *, source_slot: int = 0) -> None:
        """Copy all rows of another cache's slot into an empty one.

        Raises:
            ValueError: The slot is not empty or too short.
        """
        count = source.lengths[source_slot]
        if self.lengths[slot] or count > self.max_length:
            raise ValueError(
                f"slot {slot} holds {self.lengths[slot]} of {self.max_length} positions, "
                f"cannot load {count}"
            )
        for own, others in ((self.keys, source.keys), (self.values, source.values)):
            for to, given in zip(own, others, strict=True):
                to[slot, :, :count] = given[source_slot, :, :count]
        self.lengths[slot] = count

    def fork(self, source: int, slot: int, *, shared: int = 0) -> None:
        """Make a slot hold what another holds.

        Args:
            source: The other.
            slot: Which is overwritten.
            shared: How many of its first positions are the same already.

        Raises:
            ValueError: One of the two does not hold that many.
        """
        end = self.lengths[source]
        if not 0 <= shared <= min(end, self.lengths[slot]):
            raise ValueError(
                f"slots {source} and {slot} hold {end} and {self.lengths[slot]} positions, "
                f"cannot share {shared}"
            )
        for tensor in (*self.keys, *self.values):
            tensor[slot, :, shared:end] = tensor[source, :, shared:end]
        self.lengths[slot] = end

    def advance(self, slot: int, count: int) -> None:
        """Count ``count`` rows that every layer has written."""
        self.lengths[slot] += count

    def rewind(self, slot: int, length: int) -> None:
        """Keep the first ``length`` positions of a slot; 0 frees it.

        Raises:
            ValueError: The slot does not hold that many.
        """
        if not 0 <= length <= self.lengths[slot]:
            raise ValueError(
                f"slot {slot} holds {self.lengths[slot]} positions, cannot keep {length}"
            )
        self.lengths[slot] = length

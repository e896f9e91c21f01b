"""The interface of KV caches, whatever number format they keep, and of passes over them.

A cache has slots, each of which holds one sequence being decoded. Rewinding shortens a slot's
length: rotary keys are stored rotated by absolute position, so the remaining ones stay valid, and
the stale rest is overwritten later.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, Self

from torch import Tensor

from models.stack.taps import NO_TAPS, Taps


@dataclass(frozen=True)
class Held:
    """Keys and values of some positions of a slot, by themselves."""

    positions: int
    arrays: Sequence[Any]  # in the form of the cache that they were lifted from


class SlotCache(ABC):
    """Keys and values of several sequences of different lengths.

    Attributes:
        lengths: Positions in use, one number a slot. Kept on the host, where the decoding loop
            knows them anyway, so that no step synchronises with a device.
        max_length: The most positions of a slot.
    """

    def __init__(self, slots: int, max_length: int) -> None:
        self.lengths = [0] * slots
        self.max_length = max_length

    @property
    @abstractmethod
    def bytes(self) -> int:
        """Memory allocated for all keys and values, used or not."""

    @abstractmethod
    def keys_of(self, layer: int, slot: int) -> Tensor:
        """Return ``[kv_heads, length, head_dim]``, rotated as the queries of the stack are."""

    @abstractmethod
    def _copy(self, slot: int, source: Self, source_slot: int, begin: int, end: int) -> None:
        """Copy at least the positions ``begin`` to ``end`` from another cache's slot."""

    @abstractmethod
    def lift(self, slot: int, begin: int, end: int) -> Held:
        """Return a copy of the positions ``begin`` to ``end`` of a slot, in the cache's own form.

        Keys stay rotated by the position ids that they have, wherever they are laid.
        """

    @abstractmethod
    def _lay(self, slot: int, begin: int, held: Held) -> None:
        """Write positions of `lift` from ``begin`` on, for which there is room."""

    def lay(self, slot: int, held: Held) -> None:
        """Append positions of `lift` to a slot."""
        begin = self.lengths[slot]
        self.check_room(slot, held.positions)
        if held.positions:
            self._lay(slot, begin, held)
        self.lengths[slot] = begin + held.positions

    def check_room(self, slot: int, count: int) -> None:
        """Raise ValueError unless a slot has room for ``count`` more positions."""
        end = self.lengths[slot] + count
        if end > self.max_length:
            raise ValueError(f"slot {slot} holds {self.max_length} positions, {end} asked for")

    def load(self, slot: int, source: Self, *, source_slot: int = 0) -> None:
        """Copy all positions of another cache's slot into an empty slot of enough room."""
        count = source.lengths[source_slot]
        if self.lengths[slot] or count > self.max_length:
            raise ValueError(
                f"slot {slot} holds {self.lengths[slot]} of {self.max_length} positions, "
                f"cannot load {count}"
            )
        self._copy(slot, source, source_slot, 0, count)
        self.lengths[slot] = count

    def fork(self, source: int, slot: int, *, shared: int = 0) -> None:
        """Make a slot a copy of another one; ``shared`` leading positions are equal already."""
        end = self.lengths[source]
        if not 0 <= shared <= min(end, self.lengths[slot]):
            raise ValueError(
                f"slots {source} and {slot} hold {end} and {self.lengths[slot]} positions, "
                f"cannot share {shared}"
            )
        self._copy(slot, self, source, shared, end)
        self.lengths[slot] = end

    def advance(self, slot: int, count: int) -> None:
        """Add ``count`` positions, written by every layer, to a slot's length."""
        self.lengths[slot] += count

    def rewind(self, slot: int, length: int) -> None:
        """Truncate a slot to its first ``length`` positions; 0 frees it."""
        if not 0 <= length <= self.lengths[slot]:
            raise ValueError(
                f"slot {slot} holds {self.lengths[slot]} positions, cannot keep {length}"
            )
        self.lengths[slot] = length


class CachedPasses(Protocol):
    """The blocks and the final norm of a stack, run on a cache of another kind than its own.

    In integers `models.int8`, installed from outside.
    Both passes raise ValueError, and no slot has grown, if one is full or the cache is of another
    kind. They return hidden states ``[S, (1 + n) * D]`` after the final norm, and behind each what
    the n layers of ``taps.outputs`` gave; and queries ``[L, S, heads, head_dim]`` of the layers of
    ``taps.queries``, rotated as `SlotCache.keys_of` rotates its keys.
    """

    def new_cache(self, slots: int, max_length: int) -> SlotCache:
        """Return an empty cache of ``slots`` sequences of up to ``max_length`` positions."""

    def step(
        self,
        x: Tensor,
        positions: Tensor,
        cache: SlotCache,
        slots: Sequence[int],
        taps: Taps = NO_TAPS,
    ) -> tuple[Tensor, Tensor]:
        """Append one position, with id ``positions[b]``, to each of several distinct slots."""

    def extend(
        self,
        x: Tensor,
        positions: Tensor,
        cache: SlotCache,
        slot: int,
        mask: Tensor | None,
        taps: Taps = NO_TAPS,
    ) -> tuple[Tensor, Tensor]:
        """Append several positions to one slot.

        ``mask`` is ``[S, T]`` bool, true where a new position attends to one of the T = length + S
        of the slot; None: it attends to all.
        """

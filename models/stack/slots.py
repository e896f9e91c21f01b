"""What a slot of a cache is, whatever numbers its keys and values are.

A slot is one sequence being decoded. Rewinding shortens its length: rotary keys are stored rotated
by absolute position, so what remains stays valid, and the stale tail is overwritten later.
"""

from abc import ABC, abstractmethod
from typing import Self

from torch import Tensor


class Slots(ABC):
    """Sequences of different lengths, whose keys and values never move or grow.

    Attributes:
        lengths: Positions in use, a number a slot. They live on the host, where the loop that
            extends a slot always knows them, so that no step waits for a device.
        max_length: Positions that each slot has room for.
    """

    def __init__(self, slots: int, max_length: int) -> None:
        self.lengths = [0] * slots
        self.max_length = max_length

    @property
    @abstractmethod
    def bytes(self) -> int:
        """Memory of all keys and values, used or not."""

    @abstractmethod
    def keys_of(self, layer: int, slot: int) -> Tensor:
        """Return ``[kv_heads, length, head_dim]``, rotated as the queries of the stack are."""

    @abstractmethod
    def _copy(self, slot: int, source: Self, source_slot: int, begin: int, end: int) -> None:
        """Overwrite the positions from ``begin`` to ``end`` at least, which the source has too."""

    def check_room(self, slot: int, count: int) -> None:
        """Hold a slot to its room.

        Raises:
            ValueError: There is none for ``count`` more positions.
        """
        end = self.lengths[slot] + count
        if end > self.max_length:
            raise ValueError(f"slot {slot} holds {self.max_length} positions, {end} asked for")

    def load(self, slot: int, source: Self, *, source_slot: int = 0) -> None:
        """Copy all positions of another cache's slot into an empty one.

        Raises:
            ValueError: The slot is not empty or too short.
        """
        count = source.lengths[source_slot]
        if self.lengths[slot] or count > self.max_length:
            raise ValueError(
                f"slot {slot} holds {self.lengths[slot]} of {self.max_length} positions, "
                f"cannot load {count}"
            )
        self._copy(slot, source, source_slot, 0, count)
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
        self._copy(slot, self, source, shared, end)
        self.lengths[slot] = end

    def advance(self, slot: int, count: int) -> None:
        """Count ``count`` positions that every layer has written."""
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

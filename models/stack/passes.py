"""The protocol of a cached forward pass in another number format than torch's floats.

`Transformer` holds one implementation at most and delegates `step`, `extend` and `new_cache` to it.
The stack therefore knows no number format but its own; `models.int8` is installed from outside.
"""

from collections.abc import Sequence
from typing import Protocol

from torch import Tensor

from models.stack.slot_cache import SlotCache


class CachedPasses(Protocol):
    """The blocks and the final norm of a stack, run on a cache of its own kind.

    Rows must be exact: the bits of a row may not depend on the other rows of its batch.
    """

    def new_cache(self, slots: int, max_length: int) -> SlotCache:
        """Return an empty cache of ``slots`` sequences of up to ``max_length`` positions."""

    def step(
        self, x: Tensor, positions: Tensor, cache: SlotCache, slots: Sequence[int]
    ) -> tuple[Tensor, Tensor]:
        """Append one position to each of several slots.

        Args:
            x: ``[B, D]`` float32.
            positions: ``[B]`` int64.
            cache: From `new_cache`; each slot grows by one.
            slots: B distinct slots.

        Returns:
            Hidden states ``[B, D]`` after the final norm, and the last layer's queries
            ``[B, heads, head_dim]``, rotated as `SlotCache.keys_of` rotates its keys.

        Raises:
            ValueError: A slot is full (no slot has grown), or the cache is of another kind.
        """

    def extend(
        self,
        x: Tensor,
        positions: Tensor,
        cache: SlotCache,
        slot: int,
        mask: Tensor | None,
        layer: int | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Append several positions to one slot.

        Args:
            x: ``[S, D]`` float32.
            positions: ``[S]`` int64.
            cache: From `new_cache`; the slot grows by S.
            slot: The slot to extend.
            mask: ``[S, T]`` bool, true where a new position attends to one of the T = length + S
                positions of the slot; None: it attends to all of them.
            layer: Whose queries are returned; None: the last layer's.

        Returns:
            As `step`, ``[S, D]`` and ``[S, heads, head_dim]``.

        Raises:
            ValueError: As `step`.
        """

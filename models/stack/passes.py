"""What a stack asks of whoever runs its cached passes over another kind of cache than its own.

Over pages it is `models.stack.paged_passes`; in integers `models.int8`, installed from outside.
"""

from collections.abc import Sequence
from typing import Protocol

from torch import Tensor

from models.stack.slot_cache import SlotCache


class CachedPasses(Protocol):
    """The blocks and the final norm of a stack, run on a cache of its own kind.

    Both passes raise ValueError, and no slot has grown, if one is full or the cache is of another
    kind. They return hidden states ``[S, D]`` after the final norm, and a layer's queries
    ``[S, heads, head_dim]``, rotated as `SlotCache.keys_of` rotates its keys.
    """

    def new_cache(self, slots: int, max_length: int) -> SlotCache:
        """Return an empty cache of ``slots`` sequences of up to ``max_length`` positions."""

    def step(
        self, x: Tensor, positions: Tensor, cache: SlotCache, slots: Sequence[int]
    ) -> tuple[Tensor, Tensor]:
        """Append one position, with id ``positions[b]``, to each of several distinct slots."""

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
            mask: ``[S, T]`` bool, true where a new position attends to one of the T = length + S
                positions of the slot; None: it attends to all of them.
            layer: Whose queries are returned; None: the last layer's.
        """

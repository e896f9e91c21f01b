"""Several positions appended to each of several sequences in pages, in fixed shapes.

As a recording needs it: all that differs from call to call is read on the device. The sequences are
rows of a table of pages, which a kernel reads in place; of torch's operators, all are padded to one
number of columns, whose pages are gathered for each layer. Rows and positions that are padding
write to the pool's page for padding, which nobody reads.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from models.stack.fixed_layers import FixedPages
from models.stack.paged_cache import PAGE, PagedCache


class Layout(NamedTuple):
    """Where new positions go and what they see: the same for all levels of a chunk.

    Attributes:
        rotations: ``[B * C, 1, head_dim / 2]`` complex.
        seen: ``[B, C]`` int64: how many positions of its sequence each sees.
        places: ``[B, C]`` int64, positions within the sequences.
        written: ``[B, C]`` bool, which are kept.
        bias: See `models.stack.fixed_layers.Placed`.
    """

    rotations: Tensor
    seen: Tensor
    places: Tensor
    written: Tensor
    bias: Tensor | None


class FixedExtend(FixedPages):
    """The extension of the sequences of one pool."""

    def layout(
        self, starts: Tensor, lengths: Tensor, counts: Tensor, reach: Tensor, columns: int
    ) -> Layout:
        """Place new positions behind those that the sequences hold.

        Args:
            starts: ``[B]`` int64, position id of each sequence's first new position.
            lengths: ``[B]`` int64, how many positions each holds.
            counts: ``[B]`` int64, how many of the C new ones are kept, at least one.
            reach: ``[C]`` int64, how many of the new ones each of them sees, if they are kept.
            columns: A multiple of `PAGE` that no sequence exceeds with its new positions.
        """
        own = torch.arange(len(reach), device=reach.device)
        return self._layout(starts[:, None] + own, lengths, counts, reach, columns)

    def extend(
        self, x: Tensor, positions: Tensor, cache: PagedCache, slots: Sequence[int], reach: Tensor
    ) -> None:
        """Append as many positions to several slots, in one pass that is not recorded.

        Args:
            x: ``[B, S, D]``, of each slot.
            positions: ``[S]`` int64, position ids, the same in all slots.
            cache: Of the pool.
            slots: B slots, each of which grows by S.
            reach: ``[S]`` int64, how many of the new positions each of them sees.

        Raises:
            OutOfPages: The pool has not so many pages; no slot has grown.
        """
        batch, count = x.shape[:2]
        for slot in slots:
            cache.reserve(slot, cache.lengths[slot] + count)
        width = max(len(cache.pages(slot)) for slot in slots)
        rows = [
            [cache.lengths[slot], *cache.pages(slot)]
            + [self.pool.padding] * (width - len(cache.pages(slot)))
            for slot in slots
        ]
        table = torch.tensor(rows, pin_memory=x.is_cuda).to(x.device, non_blocking=True)
        lengths, counts = table[:, 0], torch.full((batch,), count, device=x.device)
        placed = self._layout(positions.expand(batch, -1), lengths, counts, reach, width * PAGE)
        self.run(x.flatten(0, 1), table[:, 1:], placed)
        for slot in slots:
            cache.advance(slot, count)

    def _layout(
        self, positions: Tensor, lengths: Tensor, counts: Tensor, reach: Tensor, columns: int
    ) -> Layout:
        """As `layout`, given the position ids ``[B, S]`` of all new positions."""
        own = torch.arange(len(reach), device=reach.device)
        seen = lengths[:, None] + torch.minimum(reach, counts[:, None])
        return Layout(
            self.rotations[positions.flatten()],
            seen,
            (lengths[:, None] + own).clamp(max=columns - 1),
            own < counts[:, None],
            self.bias(seen, columns),
        )

    def run(self, x: Tensor, pages: Tensor, layout: Layout) -> Tensor:
        """Append positions to each sequence.

        Args:
            x: ``[B * C, D]``, those of a sequence together.
            pages: ``[B, P]`` int64 of each sequence, `PagePool.padding` behind its last.
            layout: Of the sequences.

        Returns:
            ``[B * C, D]`` after the final norm.
        """
        places = layout.places
        written = pages.gather(1, places // PAGE) * PAGE + places % PAGE
        written = torch.where(layout.written, written, self.pool.padding * PAGE).flatten()
        hidden, _ = self.run_in_pages(x, layout.rotations, written, layout.seen, pages, layout.bias)
        return hidden

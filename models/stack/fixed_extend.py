"""Several positions appended to each of several sequences in pages, in fixed shapes.

As a recording needs it: all that differs from call to call is read on the device. The sequences are
rows of a table of pages, all padded to one number of columns, whose pages are gathered for each
layer. Rows and positions that are padding write to a page of their own, which nobody reads.

As in `models.stack.fixed_step`, only finite keys and values are stored.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from models.stack.block import Block, RmsNorm
from models.stack.fixed_step import replace_nonfinite
from models.stack.paged_cache import PAGE, PagedCache, PagePool


class Layout(NamedTuple):
    """Where new positions go and what they see: the same for all levels of a chunk.

    Attributes:
        rotations: ``[B * S, 1, head_dim / 2]`` complex.
        bias: ``[B, 1, group * S, T]`` of the stack's dtype: 0 where a position is visible, else
            -inf; once for each of the heads that share a KV head.
        places: ``[B, S]`` int64, positions within the sequences.
        written: ``[B, S]`` bool, which are kept.
    """

    rotations: Tensor
    bias: Tensor
    places: Tensor
    written: Tensor


class FixedExtend:
    """The extension of the sequences of one pool.

    Attributes:
        padding: A page for what is not kept; a row's table has it where the row has no page.
    """

    def __init__(
        self, blocks: Sequence[Block], norm: RmsNorm, rotations: Tensor, pool: PagePool
    ) -> None:
        """Take a page for padding; call in inference mode.

        Args:
            blocks: The layers.
            norm: The final norm.
            rotations: ``[P, 1, head_dim / 2]`` complex, of each position.
            pool: Whose sequences are extended.
        """
        self._blocks, self._norm, self._rotations, self._pool = blocks, norm, rotations, pool
        (self.padding,) = pool.take(1)
        like = pool.keys[0]
        self._group = blocks[0].attention.heads // blocks[0].attention.kv_heads
        self._page = torch.arange(PAGE, device=like.device)
        self._visible = torch.zeros((), dtype=like.dtype, device=like.device)
        self._masked = torch.full_like(self._visible, -torch.inf)

    def layout(
        self, starts: Tensor, lengths: Tensor, counts: Tensor, reach: Tensor, columns: int
    ) -> Layout:
        """Place new positions behind those that the sequences hold.

        Args:
            starts: ``[B]`` int64, position id of each sequence's first new position.
            lengths: ``[B]`` int64, how many positions each holds.
            counts: ``[B]`` int64, how many of the S new ones are kept, at least one.
            reach: ``[S]`` int64, how many of the new ones each of them sees, if they are kept.
            columns: T, a multiple of `PAGE` that no sequence exceeds with its new positions.
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
            + [self.padding] * (width - len(cache.pages(slot)))
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
        visible = torch.arange(columns, device=reach.device) < seen[..., None]
        return Layout(
            self._rotations[positions.flatten()],
            torch.where(visible, self._visible, self._masked).repeat(1, self._group, 1)[:, None],
            (lengths[:, None] + own).clamp(max=columns - 1),
            own < counts[:, None],
        )

    def run(self, x: Tensor, pages: Tensor, layout: Layout) -> Tensor:
        """Append positions to each sequence.

        Args:
            x: ``[B * S, D]``, those of a sequence together.
            pages: ``[B, T / PAGE]`` int64 of each sequence, `padding` behind its last.
            layout: Of the sequences.

        Returns:
            ``[B * S, D]`` after the final norm.
        """
        pool, places = self._pool, layout.places
        written = pages.gather(1, places // PAGE) * PAGE + places % PAGE
        written = torch.where(layout.written, written, self.padding * PAGE).flatten()
        read = (pages[..., None] * PAGE + self._page).flatten()
        for number, block in enumerate(self._blocks):
            attention = block.attention
            queries, keys, values = attention.project_complex(
                block.attention_norm(x), layout.rotations
            )
            keys, values = (
                self._through(rows, written, new, read, len(pages))
                for rows, new in ((pool.keys[number], keys), (pool.values[number], values))
            )
            attended = attention.attend_chunks(queries, keys, values, layout.bias)
            x = attention.added_to(x, attended)
            x = block.feed_forward.added_to(x, block.feed_forward_norm(x))
        return self._norm(x)

    @staticmethod
    def _through(rows: Tensor, written: Tensor, new: Tensor, read: Tensor, batch: int) -> Tensor:
        """Write new keys or values, and return all ``[B, kv_heads, T, head_dim]``."""
        rows.index_copy_(0, written, replace_nonfinite(new))
        return rows.index_select(0, read).view(batch, -1, *rows.shape[1:]).transpose(1, 2)

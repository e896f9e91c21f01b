"""Passes over sequences in the pages of a pool, in fixed shapes, as a graph needs them.

What differs from call to call is read on the device: a table of each sequence's pages, where new
positions are stored, how many each of them sees. What is padding is stored in the pool's page for
padding, which nobody reads.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from gpu.kernels import Kernels
from gpu.transfers import to_device
from models.cuda.kernels import operators
from models.cuda.kernels.reference import gather
from models.stack.attention import attention_statistics
from models.stack.block import Block, RmsNorm
from models.stack.paged_cache import PAGE, PagedCache, PagePool
from models.stack.taps import NO_TAPS, Taps, chosen, with_outputs


class Placed(NamedTuple):
    """Where C new positions of each of B sequences go and what they see, in all layers alike."""

    rotations: Tensor  # ``[B * C, 1, head_dim / 2]`` complex, of each position
    places: Tensor  # ``[B * C]`` int64: where each is stored among the positions of all pages
    # ``[B, C]`` int64: how many positions of its sequence each sees, itself included
    seen: Tensor
    pages: Tensor  # ``[B, P]`` int64, of each sequence, `PagePool.padding` behind its last


class PagedPasses:
    """Passes over one pool: captured, or those of `models.stack.slot_cache.CachedPasses`.

    Attributes:
        pool: On the device and of the dtype of the weights.
        rotations: ``[P, 1, head_dim / 2]`` complex, of each position id.
    """

    def __init__(
        self,
        blocks: Sequence[Block],
        norm: RmsNorm,
        rotations: Tensor,
        pool: PagePool,
        kernels: Kernels,
    ) -> None:
        self._blocks = blocks
        self._last_norm = norm
        self._kernels = kernels
        self.rotations = rotations
        self.pool = pool

    def run(self, x: Tensor, placed: Placed, taps: Taps = NO_TAPS) -> tuple[Tensor, Tensor]:
        """Append new positions to the sequences.

        Args:
            x: ``[B * C, D]``, those of a sequence together.
            taps: What is returned of some layers.

        Returns:
            ``[B * C, (1 + n) * D]`` and queries ``[L, B * C, heads, head_dim]``; see
            `models.stack.slot_cache.CachedPasses`.
        """
        project = self._kernels.of(operators.project)
        add_product = self._kernels.of(operators.add_product)
        store = self._kernels.of(operators.store)
        attend = self._kernels.of(operators.attend)
        rotations, places, seen, pages = placed
        x = x.clone()  # what is given is not changed
        asked: list[Tensor] = []
        outputs: list[Tensor] = []
        for number, block in enumerate(self._blocks):
            attention = block.attention
            feed_forward = block.feed_forward
            keys = self.pool.keys[number]
            values = self.pool.values[number]
            norm = block.attention_norm
            qkv = project(x, attention.qkv.weight, norm.weight, norm.eps, "", attention.qkv.bias)
            qkv = qkv.view(len(x), -1, attention.head_dim)
            queries = store(qkv, rotations, keys, values, places)
            attended = attend(queries, keys, values, seen, pages)
            add_product(x, attended, attention.out.weight, attention.out.bias)
            norm = block.feed_forward_norm
            up = feed_forward.gate_up
            gated = project(x, up.weight, norm.weight, norm.eps, feed_forward.kind, up.bias)
            add_product(x, gated, feed_forward.down.weight, feed_forward.down.bias)
            asked.append(queries)
            if number in taps.outputs:
                outputs.append(x.clone())
        last = self._last_norm
        hidden = self._kernels.of(operators.norm)(x, last.weight, last.eps)
        return with_outputs(hidden, outputs), chosen(asked, taps.queries)

    def layout(
        self, positions: Tensor, lengths: Tensor, counts: Tensor, reach: Tensor
    ) -> Callable[[Tensor], Placed]:
        """Place new positions behind those that sequences hold, in pages ``[B, P]`` to be given.

        Args:
            positions: ``[B, C]`` int64, position ids.
            lengths: ``[B]`` int64, how many positions each sequence holds.
            counts: ``[B]`` int64, how many of the C new ones are kept, at least one.
            reach: ``[C]`` or ``[B, C]`` int64, how many of the new ones each of them sees, if they
                are kept.
        """
        own = torch.arange(reach.shape[-1], device=reach.device)
        rotations = self.rotations[positions.flatten()]
        kept = own < counts[:, None]
        seen = lengths[:, None] + torch.minimum(reach, counts[:, None])

        def placed(pages: Tensor) -> Placed:
            places = (lengths[:, None] + own).clamp(max=pages.shape[1] * PAGE - 1)
            places = pages.gather(1, places // PAGE) * PAGE + places % PAGE
            places = torch.where(kept, places, self.pool.padding * PAGE)
            return Placed(rotations, places.flatten(), seen, pages)

        return placed

    def attention(self, queries: Tensor, seen: Tensor, pages: Tensor) -> Tensor:
        """Return the last layer's statistics ``[4, B]`` of one position of each sequence."""
        keys = gather(self.pool.keys[-1], pages, queries.dtype)
        return attention_statistics(queries, keys, seen)

    def extend(
        self,
        x: Tensor,
        positions: Tensor,
        cache: PagedCache,
        slot: int,
        mask: Tensor | None,
        taps: Taps = NO_TAPS,
    ) -> tuple[Tensor, Tensor]:
        """Append positions to a slot; see `CachedPasses`. Each sees those up to some later one."""
        count = len(x)
        held = cache.lengths[slot]
        if mask is None:
            reach = torch.full((count,), count, device=x.device)
        else:
            reach = mask[:, held:].sum(1)
        cache.check_room(slot, count)
        cache.reserve(slot, held + count)
        table = to_device([[held, count, *cache.pages(slot)]], x.device)
        layout = self.layout(positions[None], table[:, 0], table[:, 1], reach)
        found = self.run(x, layout(table[:, 2:]), taps)
        cache.advance(slot, count)
        return found

"""The layers of a pass in fixed shapes over the pages of a pool, as a recording needs them.

What differs from call to call is read on the device. Where attention is of torch's operators,
positions past a sequence's end are read although masked: a masked NaN is still a NaN. So only
finite keys and values are stored: see `models.cuda.kernels.reference.replace_nonfinite`.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from models.cuda.kernels import operators, reference
from models.cuda.kernels.choice import Kernels
from models.stack.block import Block, RmsNorm
from models.stack.paged_cache import PAGE, PagePool, Stored


class Placed(NamedTuple):
    """Where C new positions of each of B sequences go and what they see: the same for all layers.

    Attributes:
        rotations: ``[B * C, 1, head_dim / 2]`` complex, of each position.
        places: ``[B * C]`` int64: where each is stored among the positions of all pages.
        seen: ``[B, C]`` int64: how many positions of its sequence each sees, itself included.
        pages: ``[B, P]`` int64, of each sequence.
        flat: ``[B * C * 2 * kv_heads]`` int64: where the keys, then the values of each are in
            `Stored.rows`. None where a kernel stores them.
        bias: ``[B, 1, group * C, columns]``, see `reference.attend_padded`. None where a kernel
            attends.
        read: ``[B * columns]`` int64: where all positions of the pages lie. None where a kernel
            attends.
    """

    rotations: Tensor
    places: Tensor
    seen: Tensor
    pages: Tensor
    flat: Tensor | None
    bias: Tensor | None
    read: Tensor | None


class FixedLayers:
    """The layers and the final norm, of fused kernels or of torch's.

    Attributes:
        kernels: Which are fused.
        group: Heads that share a KV head.
        kv_heads: KV heads.
    """

    def __init__(self, blocks: Sequence[Block], norm: RmsNorm, kernels: Kernels) -> None:
        """Use layers as they are.

        Args:
            blocks: The layers.
            norm: The final norm.
            kernels: Which kernels are fused.
        """
        self._blocks, self._norm = blocks, norm
        self.kernels = kernels
        self.kv_heads = blocks[0].attention.kv_heads
        self.group = blocks[0].attention.heads // self.kv_heads

    def run(self, x: Tensor, stored: Sequence[Stored], placed: Placed) -> tuple[Tensor, Tensor]:
        """Append new positions to the sequences.

        Args:
            x: ``[B * C, D]``, those of a sequence together.
            stored: Of each layer.
            placed: Of the positions.

        Returns:
            ``[B * C, D]`` after the final norm, and the last layer's queries
            ``[B * C, heads, head_dim]``.
        """
        queries, own = x, False
        for block, layer in zip(self._blocks, stored, strict=True):
            attention, feed_forward = block.attention, block.feed_forward
            qkv = attention.qkv(self._normed(block.attention_norm, x))
            queries = self._store(qkv.view(len(x), -1, attention.head_dim), layer, placed)
            attended = self._attend(queries, layer, placed)
            # Only what was given is not changed: a sum in new memory takes a copy more.
            x = attention.added_to(x, attended, in_place=own)
            gate_up = feed_forward.gate_up(self._normed(block.feed_forward_norm, x))
            activated = self.kernels.gated(gate_up, feed_forward.kind)
            x, own = feed_forward.added_to(x, activated, in_place=True), True
        return self._normed(self._norm, x), queries

    def _normed(self, norm: RmsNorm, x: Tensor) -> Tensor:
        assert norm.eps is not None
        return self.kernels.norm(x, norm.weight, norm.eps)

    def _store(self, qkv: Tensor, layer: Stored, placed: Placed) -> Tensor:
        """Store the new keys and values, and return the rotated queries."""
        heads = self.group * self.kv_heads
        if placed.flat is None:
            return operators.store(
                qkv, placed.rotations, layer.keys, layer.values, placed.places, heads
            )
        reference.rotate(qkv, placed.rotations, heads + self.kv_heads)
        new = reference.replace_nonfinite(qkv[:, heads:])
        layer.rows.index_copy_(0, placed.flat, new.flatten(0, 1))
        return qkv[:, :heads]

    def _attend(self, queries: Tensor, layer: Stored, placed: Placed) -> Tensor:
        keys, values, pages = layer.keys, layer.values, placed.pages
        if placed.read is None or placed.bias is None:
            columns = pages.shape[1] * PAGE
            return operators.attend(queries, keys, values, placed.seen, pages, columns)
        keys, values = (reference.gather(one, placed.read, len(pages)) for one in (keys, values))
        return reference.attend_padded(queries, keys, values, placed.bias)


class FixedPages:
    """Passes over sequences in the pages of one pool.

    Attributes:
        pool: The pool.
        rotations: ``[P, 1, head_dim / 2]`` complex, of each position.
    """

    def __init__(
        self,
        blocks: Sequence[Block],
        norm: RmsNorm,
        rotations: Tensor,
        pool: PagePool,
        kernels: Kernels,
    ) -> None:
        """Allocate what is constant; call in inference mode.

        Args:
            blocks: The layers.
            norm: The final norm.
            rotations: ``[P, 1, head_dim / 2]`` complex, of each position.
            pool: Whose sequences are extended.
            kernels: Which kernels are fused.
        """
        self._layers = FixedLayers(blocks, norm, kernels)
        self.rotations, self.pool = rotations, pool
        rows, kv_heads, _ = pool.keys[0].shape
        heads = torch.arange(kv_heads, device=pool.keys[0].device)
        # Of keys, and of values behind all keys.
        self._heads = torch.cat([heads, rows * kv_heads + heads])

    def bias(self, seen: Tensor, columns: int) -> Tensor | None:
        """Return what hides the positions that are not seen; None where a kernel attends.

        Args:
            seen: ``[B, C]`` int64, how many positions of its sequence each new one sees.
            columns: Positions attended over.
        """
        if self._layers.kernels.attends:
            return None
        bias = reference.bias_of(seen, columns, self.pool.keys[0].dtype)
        group = self._layers.group
        # Of one position each, its heads share what they see; others are laid out for each.
        return bias.expand(-1, -1, group, -1) if seen.shape[1] == 1 else bias.repeat(1, 1, group, 1)

    def run_in_pages(
        self,
        x: Tensor,
        rotations: Tensor,
        places: Tensor,
        seen: Tensor,
        pages: Tensor,
        bias: Tensor | None,
    ) -> tuple[Tensor, Tensor]:
        """Append positions to each sequence.

        Args:
            x: ``[B * C, D]``, those of a sequence together.
            rotations: See `Placed`.
            places: See there.
            seen: See there.
            pages: See there.
            bias: Of `bias`.

        Returns:
            As `FixedLayers.run`.
        """
        layers, flat, read = self._layers, None, None
        if not layers.kernels.stores:
            flat = (places[:, None] * layers.kv_heads + self._heads).flatten()
        if not layers.kernels.attends:
            read = reference.read_places(pages, pages.shape[1] * PAGE)
        placed = Placed(rotations, places, seen, pages, flat, bias, read)
        return layers.run(x, self.pool.stored, placed)

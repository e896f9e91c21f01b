"""The layers of a pass in fixed shapes over a cache, as a recording needs them.

What differs from call to call is read on the device. Keys and values lie in the slots of a cache, a
slot a sequence, or in the pages of a pool.
"""

from collections.abc import Sequence
from typing import NamedTuple

from torch import Tensor

from models.cuda.kernels import operators, reference
from models.cuda.kernels.choice import Kernels
from models.stack.block import Block, RmsNorm


class Stored(NamedTuple):
    """Keys and values of a layer.

    Attributes:
        keys: ``[B, kv_heads, T, head_dim]``, a slot for each sequence; or ``[1, ...]``, all pages.
        values: The same.
        rows: ``[n, head_dim]``: the memory of both.
    """

    keys: Tensor
    values: Tensor
    rows: Tensor


class Placed(NamedTuple):
    """Where C new positions of each of B sequences go and what they see: the same for all layers.

    Attributes:
        rotations: ``[B * C, 1, head_dim / 2]`` complex, of each position.
        places: ``[B * C]`` int64: where each is stored, in its slot or among all pages.
        seen: ``[B, C]`` int64: how many positions of its sequence each sees, itself included.
        pages: ``[B, P]`` int64, of each sequence; None: it has a slot.
        columns: The most positions that are seen.
        flat: ``[B * C * 2 * kv_heads]`` int64: where the keys, then the values of each are in
            `Stored.rows`. None where a kernel stores them.
        bias: ``[B, 1, group * C, columns]``, see `reference.attend_padded`. None where a kernel
            attends.
        read: ``[B * columns]`` int64: where all positions of the pages lie. None where a kernel
            attends, or there are none.
    """

    rotations: Tensor
    places: Tensor
    seen: Tensor
    pages: Tensor | None
    columns: int
    flat: Tensor | None
    bias: Tensor | None
    read: Tensor | None = None


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
        keys, values, pages, columns = layer.keys, layer.values, placed.pages, placed.columns
        if placed.bias is None:
            return operators.attend(queries, keys, values, placed.seen, pages, columns)
        if placed.read is None:
            keys, values = keys[:, :, :columns], values[:, :, :columns]
        else:
            keys, values = (
                reference.gather(one, placed.read, len(placed.seen)) for one in (keys, values)
            )
        return reference.attend_padded(queries, keys, values, placed.bias)

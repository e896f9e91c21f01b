"""The cached passes of `models.stack.transformer` on a CPU, in integers.

Keys are rotated by halves rather than by pairs, and so are the queries told of.
"""

from collections.abc import Sequence
from typing import cast

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from models.int8 import attention, kernels
from models.int8.arrays import Bools, Floats, Int8s, Int64s
from models.int8.cache import Int8Cache, Int8Layer
from models.int8.linear import Int8Linear
from models.stack.block import Block, RmsNorm
from models.stack.slots import Slots


class Int8Stack:
    """The blocks and the last norm, after `models.int8.quantized.quantize_linears`."""

    def __init__(self, blocks: Sequence[Block], norm: RmsNorm, turns: Tensor) -> None:
        """Take what the stack is made of.

        Args:
            blocks: Of `Int8Linear`.
            norm: The last one.
            turns: ``[P, 1, head_dim / 2]`` complex, of each position.
        """
        self._layers = [_linears(block) for block in blocks]
        self._gain: Floats = norm.weight.detach().float().numpy()
        self._eps = norm.eps or 0.0
        self._heads = blocks[0].attention.heads
        self._silu = blocks[0].feed_forward.activation is F.silu
        self._turns = torch.cat([turns.real, turns.imag], 1).contiguous().numpy()

    def step(
        self, x: Tensor, positions: Tensor, cache: Slots, slots: Sequence[int]
    ) -> tuple[Tensor, Tensor]:
        """Add one position to each of several slots; see `Transformer.step`.

        Returns:
            ``[B, D]`` after the last norm, and the last layer's queries ``[B, heads, head_dim]``.

        Raises:
            ValueError: A slot is full, and none has grown; or the cache is of floats.
        """
        for slot in slots:
            cache.check_room(slot, 1)
        starts = [cache.lengths[slot] for slot in slots]
        rows = _Rows(x, positions, slots, starts, [start + 1 for start in starts], self._heads)
        self._pass(rows, _of_integers(cache), None)
        for slot in slots:
            cache.advance(slot, 1)
        return self._normalized(rows), rows.asked

    def extend(
        self, x: Tensor, positions: Tensor, cache: Slots, slot: int, mask: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Add positions to a slot; see `Transformer.extend`.

        Args:
            x: ``[S, D]``.
            positions: ``[S]`` int64.
            cache: Its slot grows by S.
            slot: Which one.
            mask: ``[S, T]`` bool of what each sees, the slot's rows and the new ones, or None.

        Returns:
            ``[S, D]`` after the last norm, and the last layer's queries ``[S, heads, head_dim]``.

        Raises:
            ValueError: The slot is full, or the cache is of floats.
        """
        count, start = len(x), cache.lengths[slot]
        cache.check_room(slot, count)
        end = start + count
        rows = _Rows(x, positions, [slot] * count, range(start, end), [end] * count, self._heads)
        self._pass(rows, _of_integers(cache), None if mask is None else mask.numpy())
        cache.advance(slot, count)
        return self._normalized(rows), rows.asked

    def _normalized(self, rows: "_Rows") -> Tensor:
        """Return the rows ``[R, D]`` after the last norm."""
        y = torch.empty_like(rows.hidden)
        kernels.rms_norm(rows.x, self._gain, self._eps, y.numpy())
        return y

    def _pass(self, rows: "_Rows", layers: Sequence[Int8Layer], seen: Bools | None) -> None:
        """Send rows through all blocks; all keys and values are there before any row attends."""
        for (qkv, out, gate_up, down), kept in zip(self._layers, layers, strict=True):
            qkv.round(rows.x, rows.integers, rows.scales)
            attention.place(
                qkv.multiply(rows.integers),
                rows.scales,
                qkv.scales,
                self._turns,
                rows.positions,
                rows.slots,
                rows.starts,
                rows.queries,
                kept,
            )
            attention.attend(
                rows.queries, kept, rows.slots, rows.counts, seen, rows.integers, rows.scales
            )
            kernels.add(rows.x, out.multiply(rows.integers), rows.scales, out.scales)
            gate_up.round(rows.x, rows.integers, rows.scales)
            gated = np.empty((len(rows.x), down.inputs), np.int8)
            scales = np.empty_like(rows.scales)
            product = gate_up.multiply(rows.integers)
            kernels.gate(product, rows.scales, gate_up.scales, self._silu, gated, scales)
            kernels.add(rows.x, down.multiply(gated), scales, down.scales)


def _of_integers(cache: Slots) -> Sequence[Int8Layer]:
    if not isinstance(cache, Int8Cache):
        raise ValueError("integers need a cache of integers: see Valle.new_cache")
    return cache.layers


class _Rows:
    """The rows of one pass.

    Attributes:
        hidden: ``[R, D]``, what goes from layer to layer.
        asked: ``[R, heads, head_dim]``, the queries of the layer.
        x: ``hidden`` as an array.
        queries: ``asked`` as an array.
        positions: ``[R]``.
        slots: ``[R]``, the slot of each.
        starts: ``[R]``, where in its slot.
        counts: ``[R]``, how many positions of its slot there are for it.
        integers: ``[R, D]``, what goes into the next product.
        scales: ``[R]`` of these.
    """

    def __init__(
        self,
        x: Tensor,
        positions: Tensor,
        slots: Sequence[int],
        starts: Sequence[int],
        counts: Sequence[int],
        heads: int,
    ) -> None:
        count, width = x.shape
        self.hidden = x.clone(memory_format=torch.contiguous_format)
        self.asked = x.new_empty(count, heads, width // heads)
        self.x: Floats = self.hidden.numpy()
        self.queries: Floats = self.asked.numpy()
        self.positions: Int64s = positions.numpy()
        self.slots: Int64s = np.array(slots, np.int64)
        self.starts: Int64s = np.array(starts, np.int64)
        self.counts: Int64s = np.array(counts, np.int64)
        self.integers: Int8s = np.empty((count, width), np.int8)
        self.scales: Floats = np.empty(count, np.float32)


def _linears(block: Block) -> tuple[Int8Linear, Int8Linear, Int8Linear, Int8Linear]:
    attention, forward = block.attention, block.feed_forward
    linears = attention.qkv, attention.out, forward.gate_up, forward.down
    return cast("tuple[Int8Linear, Int8Linear, Int8Linear, Int8Linear]", linears)

"""The stack's cached passes on a CPU, in integers: products by torch, all between them by kernels.

The same sums as `models.transformer` in fewer calls, four products and a few kernels a layer. Keys
and values are kept in bfloat16: reading them is most of what a step of many rows takes. All that is
computed of them is float32. Keys are rotated by halves rather than by pairs, so a cache that this
has written to is for this alone.
"""

from collections.abc import Sequence
from typing import cast

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from models import kernels
from models.block import Block, RmsNorm
from models.cache import KVCache
from models.int8_linear import Int8Linear
from models.kernels import Bfloat16s, Floats, Int8s, Int64s


class Int8Stack:
    """The blocks and the last norm, after `models.quantized.quantize_linears`."""

    def __init__(self, blocks: Sequence[Block], norm: RmsNorm, turns: Tensor) -> None:
        """Take what the stack is made of.

        Args:
            blocks: Of `Int8Linear`.
            norm: The last one.
            turns: ``[P, 1, head_dim / 2]`` complex, of each position.
        """
        self._layers = [_linears(block) for block in blocks]
        self._norm = norm
        self._attention = blocks[0].attention
        self._silu = blocks[0].feed_forward.activation is F.silu
        self._turns = torch.cat([turns.real, turns.imag], 1).contiguous().numpy()

    def step(
        self, x: Tensor, positions: Tensor, cache: KVCache, slots: Sequence[int]
    ) -> tuple[Tensor, Tensor]:
        """Add one position to each of several slots; see `Transformer.step`.

        Returns:
            ``[B, D]`` after the last norm, and the last layer's queries ``[B, heads, head_dim]``.

        Raises:
            ValueError: A slot is full; none has grown.
        """
        for slot in slots:
            cache.check_room(slot, 1)
        rows = _Rows(
            x, positions, slots, [cache.lengths[slot] for slot in slots], self._attention.heads
        )
        counts = rows.starts + 1
        for number in range(len(self._layers)):
            keys, values = cache.bits[number]
            self._enter(number, rows, keys, values)
            kernels.attend(
                rows.queries, keys, values, rows.slots, counts, rows.integers, rows.scales
            )
            self._leave(number, rows)
        for slot in slots:
            cache.advance(slot, 1)
        return self._norm(rows.hidden), rows.asked

    def extend(
        self, x: Tensor, positions: Tensor, cache: KVCache, slot: int, mask: Tensor | None
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
            ValueError: The slot is full.
        """
        count, start = len(x), cache.lengths[slot]
        cache.check_room(slot, count)
        starts, end = range(start, start + count), start + count
        rows = _Rows(x, positions, [slot] * count, starts, self._attention.heads)
        bias = None
        if mask is not None:
            bias = torch.zeros(mask.shape).masked_fill_(~mask, -torch.inf)
        for number, (_, out, _, _) in enumerate(self._layers):
            self._enter(number, rows, *cache.bits[number])
            attended = self._attention.attend(
                rows.asked,
                cache.keys[number][slot, :, :end].float(),
                cache.values[number][slot, :, :end].float(),
                bias,
            )
            out.round(attended.numpy(), rows.integers, rows.scales)
            self._leave(number, rows)
        cache.advance(slot, count)
        return self._norm(rows.hidden), rows.asked

    def _enter(self, number: int, rows: "_Rows", keys: Bfloat16s, values: Bfloat16s) -> None:
        """Fill the rows' queries, and their places in a layer's keys and values."""
        qkv = self._layers[number][0]
        qkv.round(rows.x, rows.integers, rows.scales)
        kernels.place(
            qkv.multiply(rows.integers),
            rows.scales,
            qkv.scales,
            self._turns,
            rows.positions,
            rows.slots,
            rows.starts,
            rows.queries,
            keys,
            values,
        )

    def _leave(self, number: int, rows: "_Rows") -> None:
        """Go from what the rows attended to, rounded, to the end of the layer."""
        _, out, gate_up, down = self._layers[number]
        kernels.add(rows.x, out.multiply(rows.integers), rows.scales, out.scales)
        gate_up.round(rows.x, rows.integers, rows.scales)
        gated = np.empty((len(rows.x), down.weight.shape[1]), np.int8)
        scales = np.empty_like(rows.scales)
        product = gate_up.multiply(rows.integers)
        kernels.gate(product, rows.scales, gate_up.scales, self._silu, gated, scales)
        kernels.add(rows.x, down.multiply(gated), scales, down.scales)


class _Rows:
    """The rows of one pass.

    What torch sums over lies in its own memory: where numpy's begins is left to chance, and torch
    may sum in another order there.

    Attributes:
        hidden: ``[R, D]``, what goes from layer to layer.
        asked: ``[R, heads, head_dim]``, the queries of the layer.
        x: ``hidden`` as an array.
        queries: ``asked`` as an array.
        positions: ``[R]``.
        slots: ``[R]``, the slot of each.
        starts: ``[R]``, where in its slot.
        integers: ``[R, D]``, what goes into the next product.
        scales: ``[R]`` of these.
    """

    def __init__(
        self,
        x: Tensor,
        positions: Tensor,
        slots: Sequence[int],
        starts: Sequence[int],
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
        self.integers: Int8s = np.empty((count, width), np.int8)
        self.scales: Floats = np.empty(count, np.float32)


def _linears(block: Block) -> tuple[Int8Linear, Int8Linear, Int8Linear, Int8Linear]:
    attention, forward = block.attention, block.feed_forward
    linears = attention.qkv, attention.out, forward.gate_up, forward.down
    return cast("tuple[Int8Linear, Int8Linear, Int8Linear, Int8Linear]", linears)

"""The cached passes of `models.stack.transformer` with int8 products, for CPUs.

Queries and keys are rotated by halves (`Attention.project`), not by pairs as in a float stack's
cached passes.
"""

from collections.abc import Sequence
from typing import cast

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from cpu.arrays import Bools, Floats, Int8s, Int64s
from models.int8 import attention, kernels
from models.int8.cache import Int8Cache
from models.int8.linear import Int8Linear
from models.stack.block import Block
from models.stack.slot_cache import SlotCache
from models.stack.taps import NO_TAPS, Taps
from models.stack.transformer import Transformer


class Int8Passes:
    """The blocks and the final norm in integers; see `models.stack.slot_cache.CachedPasses`."""

    def __init__(self, stack: Transformer) -> None:
        blocks = stack.blocks
        norm = stack.norm
        rotations = stack.rotations
        self._config = stack.config
        self._layers = [_linears(block) for block in blocks]
        self._gain: Floats = norm.weight.detach().float().numpy()
        self._eps = norm.eps or 0.0
        self._heads = blocks[0].attention.heads
        self._gated = blocks[0].feed_forward.gated
        self._silu = blocks[0].feed_forward.activation is F.silu
        self._rotations = torch.cat([rotations.real, rotations.imag], 1).contiguous().numpy()

    def new_cache(self, slots: int, max_length: int) -> SlotCache:
        """Return an empty `Int8Cache`; see `CachedPasses.new_cache`."""
        return Int8Cache(self._config, slots, max_length)

    def step(
        self,
        x: Tensor,
        positions: Tensor,
        cache: SlotCache,
        slots: Sequence[int],
        taps: Taps = NO_TAPS,
    ) -> tuple[Tensor, Tensor]:
        """Append one position to each of several slots; see `CachedPasses.step`."""
        for slot in slots:
            cache.check_room(slot, 1)
        starts = [cache.lengths[slot] for slot in slots]
        ends = [start + 1 for start in starts]
        rows = _Activations(x, positions, slots, starts, ends, self._heads)
        done = self._run(rows, cache, None, taps)
        for slot in slots:
            cache.advance(slot, 1)
        return done

    def extend(
        self,
        x: Tensor,
        positions: Tensor,
        cache: SlotCache,
        slot: int,
        mask: Tensor | None,
        taps: Taps = NO_TAPS,
    ) -> tuple[Tensor, Tensor]:
        """Append several positions to one slot; see `CachedPasses.extend`."""
        count = len(x)
        start = cache.lengths[slot]
        cache.check_room(slot, count)
        end = start + count
        slots = [slot] * count
        starts = range(start, end)
        ends = [end] * count
        rows = _Activations(x, positions, slots, starts, ends, self._heads)
        done = self._run(rows, cache, None if mask is None else mask.numpy(), taps)
        cache.advance(slot, count)
        return done

    def _run(
        self, rows: "_Activations", cache: SlotCache, mask: Bools | None, taps: Taps
    ) -> tuple[Tensor, Tensor]:
        """Return the rows after the final norm, and what is asked of some layers."""
        if not isinstance(cache, Int8Cache):
            raise ValueError("an int8 stack needs an Int8Cache: see Transformer.new_cache")
        wanted = [layer % len(self._layers) for layer in taps.queries]
        queries = rows.queries.new_empty(len(wanted), *rows.queries.shape)
        width = len(self._gain)
        states = rows.hidden.new_empty(len(rows.x), taps.width(width))
        array: Floats = states.numpy()
        behind = width
        blocks = enumerate(zip(self._layers, cache.layers, strict=True))
        for number, ((qkv, out, gate_up, down), layer) in blocks:
            qkv.quantize(rows.x, rows.integers, rows.scales)
            attention.store(
                qkv.multiply(rows.integers),
                rows.scales,
                qkv.scales,
                self._rotations,
                rows.positions,
                rows.slots,
                rows.starts,
                rows.query_array,
                layer,
                qkv.bias,
            )
            # All rows have stored their keys and values before any attends.
            attention.attend(
                rows.query_array,
                layer,
                rows.slots,
                rows.ends,
                mask,
                rows.integers,
                rows.scales,
            )
            kernels.add(rows.x, out.multiply(rows.integers), rows.scales, out.scales, out.bias)
            gate_up.quantize(rows.x, rows.integers, rows.scales)
            gated = np.empty((len(rows.x), down.inputs), np.int8)
            scales = np.empty_like(rows.scales)
            product = gate_up.multiply(rows.integers)
            if self._gated:
                kernels.gate(product, rows.scales, gate_up.scales, self._silu, gated, scales)
            else:
                bias = gate_up.bias
                kernels.rectify(product, rows.scales, gate_up.scales, bias, gated, scales)
            kernels.add(rows.x, down.multiply(gated), scales, down.scales, down.bias)
            for place, one in enumerate(wanted):
                if one == number:
                    queries[place] = rows.queries  # which the next block overwrites
            if number in taps.outputs:
                array[:, behind : behind + width] = rows.x
                behind += width
        kernels.rms_norm(rows.x, self._gain, self._eps, array[:, :width])
        return states, queries


class _Activations:
    """The activations of the R rows of one pass, and where the rows belong in the cache.

    ``x`` and ``query_array`` are ``hidden`` ``[R, D]``, the residual stream, and ``queries`` ``[R,
    heads, head_dim]`` of the current layer as arrays, sharing their memory. Of each row, ``[R]``:
    ``positions`` are for the rotation, ``slots`` its slot, ``starts`` its index in it, ``ends`` how
    many positions it may attend to. ``integers`` ``[R, D]`` with ``scales`` ``[R]`` are the
    quantised input of the next product.
    """

    def __init__(
        self,
        x: Tensor,
        positions: Tensor,
        slots: Sequence[int],
        starts: Sequence[int],
        ends: Sequence[int],
        heads: int,
    ) -> None:
        count, width = x.shape
        self.hidden = x.clone(memory_format=torch.contiguous_format)
        self.queries = x.new_empty(count, heads, width // heads)
        self.x: Floats = self.hidden.numpy()
        self.query_array: Floats = self.queries.numpy()
        self.positions: Int64s = positions.numpy()
        self.slots: Int64s = np.array(slots, np.int64)
        self.starts: Int64s = np.array(starts, np.int64)
        self.ends: Int64s = np.array(ends, np.int64)
        self.integers: Int8s = np.empty((count, width), np.int8)
        self.scales: Floats = np.empty(count, np.float32)


def _linears(block: Block) -> tuple[Int8Linear, Int8Linear, Int8Linear, Int8Linear]:
    attention = block.attention
    forward = block.feed_forward
    linears = attention.qkv, attention.out, forward.gate_up, forward.down
    return cast("tuple[Int8Linear, Int8Linear, Int8Linear, Int8Linear]", linears)

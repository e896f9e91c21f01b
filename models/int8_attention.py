"""Attention over keys and values of 8 bits: two products of integers, and a softmax between them.

Queries and weights are rounded to 14 bits and sign, as two digits of 8 bits to the base of 128:
keys and values alone lose anything worth a number. Weights are rounded block by block of 64
positions, so that where attention is thin it is rounded finely.

Rows are computed alone, as in `models.kernels`.
"""

import math

import numpy as np

from models.arrays import Bools, Floats, Int8s, Int32s, Int64s
from models.compiling import kernel
from models.int8_cache import BLOCK, Int8Layer
from models.int8_product import COLUMNS, NEIGHBOURS, ZERO, multiply
from models.kernels import LEAST_SCALE, exp, greatest, quantize_row

_BASE = 128
_STEPS = 127 * _BASE

_f32, _i32 = np.float32, np.int32


@kernel
def place(
    product: Int32s,
    scales: Floats,
    columns: Floats,
    turns: Floats,
    positions: Int64s,
    slots: Int64s,
    starts: Int64s,
    queries: Floats,
    layer: Int8Layer,
) -> None:
    """Rotate queries and keys by their positions, and put keys and values where they belong.

    Args:
        product: ``[R, (heads + 2 kv_heads) head_dim]`` of integers: queries, keys, values.
        scales: ``[R]`` of its rows.
        columns: Of its columns.
        turns: ``[P, 2, head_dim / 2]``, cosines and sines of each position.
        positions: ``[R]``.
        slots: ``[R]``, the slot of each row.
        starts: ``[R]``, where in its slot.
        queries: ``[R, heads, head_dim]``, written.
        layer: Written to.
    """
    heads, size = queries.shape[1:]
    kv_heads, half = layer.keys.shape[1], size // 2
    rotated, integers = np.empty(size, np.float32), np.empty(size, np.int8)
    for r in range(len(product)):
        scale, slot, start = scales[r], slots[r], starts[r]
        cos, sin = turns[positions[r]]
        for head in range(heads + kv_heads):
            at = head * size
            for d in range(half):
                a = _f32(product[r, at + d]) * (scale * columns[at + d])
                b = _f32(product[r, at + half + d]) * (scale * columns[at + half + d])
                rotated[d] = a * cos[d] - b * sin[d]
                rotated[half + d] = b * cos[d] + a * sin[d]
            if head < heads:
                queries[r, head] = rotated
            else:
                own = head - heads
                layer.key_scales[slot, own, start] = quantize_row(rotated, integers)
                tile = layer.keys[slot, own, start // COLUMNS, :, start % COLUMNS]
                for d in range(size):
                    tile[d // NEIGHBOURS, d % NEIGHBOURS] = np.uint8(_i32(integers[d]) + ZERO)
        for head in range(kv_heads):
            at = (heads + kv_heads + head) * size
            for d in range(size):
                rotated[d] = _f32(product[r, at + d]) * (scale * columns[at + d])
            layer.value_scales[slot, head, start] = quantize_row(rotated, integers)
            tiles = layer.values[slot, head, start // BLOCK, :, start % BLOCK // NEIGHBOURS]
            for d in range(size):
                tiles[d // COLUMNS, d % COLUMNS, start % NEIGHBOURS] = np.uint8(
                    _i32(integers[d]) + ZERO
                )


@kernel
def attend(
    queries: Floats,
    layer: Int8Layer,
    slots: Int64s,
    counts: Int64s,
    seen: Bools | None,
    integers: Int8s,
    scales: Floats,
) -> None:
    """Attend from each row to the first positions of its slot, and round what comes of it.

    Args:
        queries: ``[R, heads, head_dim]``.
        layer: Keys and values.
        slots: ``[R]``, the slot of each row.
        counts: ``[R]``, how many of its positions there are.
        seen: ``[R, counts]``, which of these a row sees; None: all.
        integers: ``[R, heads head_dim]``, written.
        scales: ``[R]``, written.
    """
    rows, heads, size = queries.shape
    kv_heads, quads = layer.keys.shape[1], layer.keys.shape[3]
    group, most = heads // kv_heads, 0
    for r in range(rows):
        most = max(most, counts[r])
    blocks = (most + BLOCK - 1) // BLOCK
    # Of a digit each: first those of the queries, or of their weights, then the lower ones.
    asked = np.zeros((2 * group, quads * NEIGHBOURS), np.int8)
    products = np.empty((2 * group, blocks * BLOCK), np.int32)
    weights = np.empty(blocks * BLOCK, np.float32)
    shares = np.empty((blocks, 2 * group, BLOCK), np.int8)
    steps = np.empty((blocks, group), np.float32)
    sums = np.empty((2 * group, layer.values.shape[3] * COLUMNS), np.int32)
    attended = np.empty((rows, heads, size), np.float32)
    root = _f32(1.0) / _f32(math.sqrt(size))
    for head in range(kv_heads):
        for r in range(rows):
            slot, count = slots[r], counts[r]
            used = (count + BLOCK - 1) // BLOCK
            tiles = used * (BLOCK // COLUMNS)
            for g in range(group):
                query = queries[r, head * group + g]
                steps[0, g] = _split(query, asked[g], asked[group + g]) * root
            multiply(asked, layer.keys[slot, head, :tiles], products)
            key_scales = layer.key_scales[slot, head]
            value_scales = layer.value_scales[slot, head]
            for g in range(group):
                step = steps[0, g]
                for t in range(count):
                    product = _i32(_i32(products[g, t] << _i32(7)) + products[group + g, t])
                    weights[t] = _f32(product) * (step * key_scales[t])
                if seen is not None:
                    for t in range(count):
                        weights[t] = weights[t] if seen[r, t] else _f32(-np.inf)
                weights[count : used * BLOCK] = _f32(-np.inf)
                _softmax(weights[: used * BLOCK])
                for t in range(count):
                    weights[t] *= value_scales[t]
                for block in range(used):
                    part = weights[block * BLOCK : (block + 1) * BLOCK]
                    steps[block, g] = _split(part, shares[block, g], shares[block, group + g])
            mixed = attended[r, head * group : (head + 1) * group]
            mixed[:] = _f32(0.0)
            for block in range(used):
                multiply(shares[block], layer.values[slot, head, block], sums)
                for g in range(group):
                    step = steps[block, g]
                    for d in range(size):
                        product = _i32(_i32(sums[g, d] << _i32(7)) + sums[group + g, d])
                        mixed[g, d] += _f32(product) * step
    for r in range(rows):
        scales[r] = quantize_row(attended[r].reshape(-1), integers[r])


@kernel
def _softmax(weights: Floats) -> None:
    """Turn scores ``[count]`` into weights; those of minus infinity into 0."""
    top, total = weights[0], _f32(0.0)
    for t in range(len(weights)):
        top = max(top, weights[t])
    for t in range(len(weights)):
        hidden = weights[t] == _f32(-np.inf)
        weights[t] = _f32(0.0) if hidden else exp(weights[t] - top)
    for t in range(len(weights)):
        total += weights[t]
    share = _f32(1.0) / total
    for t in range(len(weights)):
        weights[t] *= share


@kernel
def _split(row: Floats, high: Int8s, low: Int8s) -> np.float32:
    """Round ``row`` ``[D]`` into two digits of each number, and return the scale."""
    scale = max(greatest(row) / _f32(_STEPS), LEAST_SCALE)
    steps = _f32(1.0) / scale
    for d in range(len(row)):
        y = row[d] * steps
        number = _i32(y + _f32(0.5)) if y >= 0 else _i32(y - _f32(0.5))
        first = _i32(_i32(number + _i32(64)) >> _i32(7))
        high[d] = np.int8(first)
        low[d] = np.int8(_i32(number - _i32(first << _i32(7))))
    return scale

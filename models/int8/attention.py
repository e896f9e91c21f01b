"""Attention over an int8 KV cache: two integer products with a softmax between them.

Queries and attention weights are quantised to 14 bits and a sign, as two digits to the base 128, so
that nearly all of the error is that of keys and values. Weights are quantised in blocks of 64
positions, each with its own scale, so that small weights keep their precision.

Of R rows, computed independently, ``slots`` are their slots of the cache; scales are those of rows,
columns those of a product's columns; ``queries``, ``integers`` and their scales are written.
"""

import math

import numpy as np

from cpu.arrays import Bools, Floats, Int8s, Int32s, Int64s, Uint8s
from cpu.compiling import kernel
from models.int8.cache import BLOCK, Int8Layer
from models.int8.kernels import MIN_SCALE, exp, max_abs, quantize_row
from models.int8.processors import QUAD
from models.int8.product import COLUMNS, ZERO_POINT, multiply
from models.int8.row_sum import sum_row

_f32 = np.float32
_i32 = np.int32
_DIGIT = _i32(7)  # bits
_HALF = _i32(1 << 6)  # half a step of the high digit
_STEPS = 127 << 7


@kernel
def store(
    product: Int32s,
    scales: Floats,
    columns: Floats,
    rotations: Floats,
    positions: Int64s,
    slots: Int64s,
    starts: Int64s,
    queries: Floats,
    layer: Int8Layer,
    bias: Floats | None = None,
) -> None:
    """Rotate queries and keys by their positions; write keys and values to the layer's cache.

    Args:
        product: ``[R, (heads + 2 kv_heads) head_dim]`` int32: queries, keys, values.
        scales: ``[R]``.
        columns: ``[(heads + 2 kv_heads) head_dim]``.
        rotations: ``[P, 2, head_dim / 2]``, cosines and sines of each position.
        positions: ``[R]``, for the rotation.
        slots: ``[R]``.
        starts: ``[R]``, the row's index in its slot.
        queries: ``[R, heads, head_dim]``.
        layer: Written.
        bias: As ``columns``, what is added to the product; None: nothing.
    """
    heads, size = queries.shape[1:]
    kv_heads = layer.keys.shape[1]
    half = size // 2
    rotated = np.empty(size, np.float32)
    integers = np.empty(size, np.int8)
    for r in range(len(product)):
        scale = scales[r]
        slot = slots[r]
        start = starts[r]
        cos, sin = rotations[positions[r]]
        for head in range(heads + kv_heads):
            at = head * size
            for d in range(half):
                a = _f32(product[r, at + d]) * (scale * columns[at + d])
                b = _f32(product[r, at + half + d]) * (scale * columns[at + half + d])
                if bias is not None:
                    a += bias[at + d]
                    b += bias[at + half + d]
                rotated[d] = a * cos[d] - b * sin[d]
                rotated[half + d] = b * cos[d] + a * sin[d]
            if head < heads:
                queries[r, head] = rotated
            else:
                own = head - heads
                layer.key_scales[slot, own, start] = quantize_row(rotated, integers)
                tile = layer.keys[slot, own, start // COLUMNS, :, start % COLUMNS]
                for d in range(size):
                    tile[d // QUAD, d % QUAD] = np.uint8(_i32(integers[d]) + ZERO_POINT)
        for head in range(kv_heads):
            at = (heads + kv_heads + head) * size
            for d in range(size):
                rotated[d] = _f32(product[r, at + d]) * (scale * columns[at + d])
            if bias is not None:
                rotated += bias[at : at + size]
            layer.value_scales[slot, head, start] = quantize_row(rotated, integers)
            tiles = layer.values[slot, head, start // BLOCK, :, start % BLOCK // QUAD]
            for d in range(size):
                tiles[d // COLUMNS, d % COLUMNS, start % QUAD] = np.uint8(
                    _i32(integers[d]) + ZERO_POINT
                )


@kernel
def attend(
    queries: Floats,
    layer: Int8Layer,
    slots: Int64s,
    counts: Int64s,
    mask: Bools | None,
    integers: Int8s,
    scales: Floats,
) -> None:
    """Attend from each row to the first ``counts`` positions of its slot, and quantise the result.

    ``queries`` are those of `store`; ``mask`` ``[R, counts]`` is true where visible, None where all
    are; ``integers`` ``[R, heads head_dim]``.
    """
    rows, heads, size = queries.shape
    kv_heads = layer.keys.shape[1]
    group = heads // kv_heads
    longest = 0
    for r in range(rows):
        longest = max(longest, counts[r])
    blocks = (longest + BLOCK - 1) // BLOCK
    # Scratch space for the queries of one KV head; high digits come before low ones. None of these
    # is sliced along its rows, which would hide from the compiler that they are contiguous.
    digits = np.zeros((2 * group, layer.keys.shape[3] * QUAD), np.int8)
    products = np.empty((2 * group, blocks * BLOCK), np.int32)
    weights = np.empty((group, blocks * BLOCK), np.float32)
    shares = np.empty((2 * group, BLOCK), np.int8)
    sums = np.empty((2 * group, layer.values.shape[3] * COLUMNS), np.int32)
    attended = np.empty((rows, heads, size), np.float32)
    for head in range(kv_heads):
        own = slice(head * group, (head + 1) * group)
        for r in range(rows):
            slot = slots[r]
            count = counts[r]
            used = (count + BLOCK - 1) // BLOCK
            tiles = layer.keys[slot, head, : used * (BLOCK // COLUMNS)]
            key_scales = layer.key_scales[slot, head, :count]
            _score(queries[r, own], tiles, key_scales, digits, products, weights)
            for g in range(group):
                scores = weights[g, : used * BLOCK]
                if mask is not None:
                    for t in range(count):
                        scores[t] = scores[t] if mask[r, t] else _f32(-np.inf)
                scores[count:] = _f32(-np.inf)
                _softmax(scores)
            blocks_of_values = layer.values[slot, head, :used]
            value_scales = layer.value_scales[slot, head, :count]
            _mix(weights, blocks_of_values, value_scales, shares, sums, attended[r, own])
    for r in range(rows):
        scales[r] = quantize_row(attended[r].reshape(-1), integers[r])


@kernel
def _score(
    queries: Floats,
    tiles: Uint8s,
    key_scales: Floats,
    digits: Int8s,
    products: Int32s,
    scores: Floats,
) -> None:
    """Write the scaled scores ``[group, counts]`` of the queries that share one KV head."""
    group, size = queries.shape
    count = len(key_scales)
    root = _f32(1.0) / _f32(math.sqrt(size))
    query_scales = np.empty(group, np.float32)
    for g in range(group):
        query_scales[g] = _split(queries[g], digits[g], digits[group + g]) * root
    multiply(digits, tiles, products)
    for g in range(group):
        query_scale = query_scales[g]
        for t in range(count):
            product = _combine(products[g, t], products[group + g, t])
            scores[g, t] = _f32(product) * (query_scale * key_scales[t])


@kernel
def _mix(
    weights: Floats,
    tiles: Uint8s,
    value_scales: Floats,
    shares: Int8s,
    sums: Int32s,
    mixed: Floats,
) -> None:
    """Write the weighted sums ``[group, head_dim]`` of one head; overwrites the weights."""
    group, size = mixed.shape
    weight_scales = np.empty(group, np.float32)
    for g in range(group):
        for t in range(len(value_scales)):
            weights[g, t] *= value_scales[t]
    mixed[:] = _f32(0.0)
    for block in range(len(tiles)):
        for g in range(group):
            part = weights[g, block * BLOCK : (block + 1) * BLOCK]
            weight_scales[g] = _split(part, shares[g], shares[group + g])
        multiply(shares, tiles[block], sums)
        for g in range(group):
            weight_scale = weight_scales[g]
            for d in range(size):
                mixed[g, d] += _f32(_combine(sums[g, d], sums[group + g, d])) * weight_scale


@kernel
def _softmax(weights: Floats) -> None:
    """Softmax in place; scores of minus infinity get the weight 0."""
    top = weights[0]
    for t in range(len(weights)):
        top = max(top, weights[t])
    for t in range(len(weights)):
        hidden = weights[t] == _f32(-np.inf)
        weights[t] = _f32(0.0) if hidden else exp(weights[t] - top)
    share = _f32(1.0) / sum_row(weights)
    for t in range(len(weights)):
        weights[t] *= share


@kernel
def _split(row: Floats, high: Int8s, low: Int8s) -> np.float32:
    """Quantise ``row`` ``[D]`` to 14 bits, as two digits of 7 bits each, and return the scale."""
    scale = max(max_abs(row) / _f32(_STEPS), MIN_SCALE)
    inverse = _f32(1.0) / scale
    for d in range(len(row)):
        y = row[d] * inverse
        number = _i32(y + _f32(0.5)) if y >= 0 else _i32(y - _f32(0.5))
        # numba widens sums of int32 to int64, which takes twice the time.
        first = _i32(_i32(number + _HALF) >> _DIGIT)
        high[d] = np.int8(first)
        low[d] = np.int8(_i32(number - _i32(first << _DIGIT)))
    return scale


@kernel
def _combine(high: np.int32, low: np.int32) -> np.int32:
    """Return the value of a high and a low digit."""
    return _i32(_i32(high << _DIGIT) + low)

"""Attention over keys and values of 8 bits: two products of integers, and a softmax between them.

Queries and weights are rounded to 14 bits and a sign, as two digits to the base of 128, so that
next to nothing is lost but by keys and values. Weights are rounded block by block of 64 positions:
where attention is thin it is rounded finely.

Rows are computed alone, as in `models.int8.kernels`.
"""

import math

import numpy as np

from models.int8.arrays import Bools, Floats, Int8s, Int32s, Int64s, Uint8s
from models.int8.cache import BLOCK, Int8Layer
from models.int8.compiling import kernel
from models.int8.kernels import LEAST_SCALE, exp, greatest, quantize_row
from models.int8.processors import NEIGHBOURS
from models.int8.product import COLUMNS, ZERO, multiply
from models.int8.sums import sum_row

_f32, _i32 = np.float32, np.int32
_DIGIT = _i32(7)  # bits
_HALF = _i32(1 << 6)  # of the first digit's step
_STEPS = 127 << 7


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
    kv_heads = layer.keys.shape[1]
    group, most = heads // kv_heads, 0
    for r in range(rows):
        most = max(most, counts[r])
    blocks = (most + BLOCK - 1) // BLOCK
    # What a head of keys needs for its queries; of two digits the first ones stand first. None of
    # these is cut along its rows, which would hide from the compiler that they are contiguous.
    asked = np.zeros((2 * group, layer.keys.shape[3] * NEIGHBOURS), np.int8)
    products = np.empty((2 * group, blocks * BLOCK), np.int32)
    weights = np.empty((group, blocks * BLOCK), np.float32)
    shares = np.empty((2 * group, BLOCK), np.int8)
    sums = np.empty((2 * group, layer.values.shape[3] * COLUMNS), np.int32)
    attended = np.empty((rows, heads, size), np.float32)
    for head in range(kv_heads):
        own = slice(head * group, (head + 1) * group)
        for r in range(rows):
            slot, count = slots[r], counts[r]
            used = (count + BLOCK - 1) // BLOCK
            tiles = layer.keys[slot, head, : used * (BLOCK // COLUMNS)]
            key_scales = layer.key_scales[slot, head, :count]
            _score(queries[r, own], tiles, key_scales, asked, products, weights)
            for g in range(group):
                scores = weights[g, : used * BLOCK]
                if seen is not None:
                    for t in range(count):
                        scores[t] = scores[t] if seen[r, t] else _f32(-np.inf)
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
    asked: Int8s,
    products: Int32s,
    scores: Floats,
) -> None:
    """Write the scores of a head's queries, as many of each row as there are keys."""
    group, size = queries.shape
    count, root = len(key_scales), _f32(1.0) / _f32(math.sqrt(size))
    steps = np.empty(group, np.float32)
    for g in range(group):
        steps[g] = _split(queries[g], asked[g], asked[group + g]) * root
    multiply(asked, tiles, products)
    for g in range(group):
        step = steps[g]
        for t in range(count):
            product = _number(products[g, t], products[group + g, t])
            scores[g, t] = _f32(product) * (step * key_scales[t])


@kernel
def _mix(
    weights: Floats,
    tiles: Uint8s,
    value_scales: Floats,
    shares: Int8s,
    sums: Int32s,
    mixed: Floats,
) -> None:
    """Write the weighted sums of a head's values; the weights are used up."""
    group, size = mixed.shape
    steps = np.empty(group, np.float32)
    for g in range(group):
        for t in range(len(value_scales)):
            weights[g, t] *= value_scales[t]
    mixed[:] = _f32(0.0)
    for block in range(len(tiles)):
        for g in range(group):
            part = weights[g, block * BLOCK : (block + 1) * BLOCK]
            steps[g] = _split(part, shares[g], shares[group + g])
        multiply(shares, tiles[block], sums)
        for g in range(group):
            step = steps[g]
            for d in range(size):
                mixed[g, d] += _f32(_number(sums[g, d], sums[group + g, d])) * step


@kernel
def _softmax(weights: Floats) -> None:
    """Turn scores ``[count]`` into weights; those of minus infinity into 0."""
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
    """Round ``row`` ``[D]`` into two digits of each number, and return the scale."""
    scale = max(greatest(row) / _f32(_STEPS), LEAST_SCALE)
    steps = _f32(1.0) / scale
    for d in range(len(row)):
        y = row[d] * steps
        number = _i32(y + _f32(0.5)) if y >= 0 else _i32(y - _f32(0.5))
        # Sums of int32 are int64 to numba, which takes twice the time.
        first = _i32(_i32(number + _HALF) >> _DIGIT)
        high[d] = np.int8(first)
        low[d] = np.int8(_i32(number - _i32(first << _DIGIT)))
    return scale


@kernel
def _number(high: np.int32, low: np.int32) -> np.int32:
    """Return the number of two digits."""
    return _i32(_i32(high << _DIGIT) + low)

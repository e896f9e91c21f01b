"""What stands between the integer products of the stack, each as one pass over its rows.

Few rows take microseconds of arithmetic. As operations of torch they take a hundred calls a layer,
which cost more than the sums; numba compiles each of these functions into one loop. They let go of
the interpreter's lock.

A row is computed alone and in an order that depends on its own shape, so its bits are the same
among any others. Sums stand in loops that write nothing: a loop that reads one array and writes
another is compiled twice, for arrays that may overlap too, and which runs is seen by where they
lie. Scales and rounding are those of `models.int8_linear`. Arrays are C-contiguous
numpy, which shares its memory with torch. A row that has a NaN stays NaN in the float arrays.
"""

import math
from collections.abc import Callable
from contextlib import suppress
from typing import ParamSpec, TypeVar

import numba
import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Bfloat16s = NDArray[np.uint16]  # numpy does not know the type: its bits
Int8s = NDArray[np.int8]
Int32s = NDArray[np.int32]
Int64s = NDArray[np.int64]

STEPS = 127
LEAST_SCALE = np.finfo(np.float32).tiny  # of a row of zeros

_P = ParamSpec("_P")
_R = TypeVar("_R")
_f32, _i32 = np.float32, np.int32
# Sums may be taken in another order, but a NaN must stay one.
_REORDERED = {"reassoc", "contract", "nsz", "arcp"}
_NOT_SIGN = _i32(0x7FFFFFFF)


def _kernel(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Compile when first called; the machine code is kept on disk where there is a place for it."""
    compiled = numba.njit(nogil=True, fastmath=_REORDERED, error_model="numpy")(function)
    with suppress(RuntimeError):  # no folder may be written to
        compiled.enable_caching()
    return compiled


@_kernel
def _exp(x: np.float32) -> np.float32:
    """Return e to a number that is not above 0; within 3e-7 of it, relatively.

    Two to a whole number, by its bits, times a polynomial (S. Moshier, Cephes, `expf`). Unlike
    libm's it is one that a loop can take many at a time.
    """
    x = max(x, _f32(-87.0))
    whole = _i32(x * _f32(1.44269504) - _f32(0.5))
    rest = x - _f32(whole) * _f32(0.693359375) + _f32(whole) * _f32(2.12194440e-4)
    y = _f32(1.9875691500e-4)
    y = y * rest + _f32(1.3981999507e-3)
    y = y * rest + _f32(8.3334519073e-3)
    y = y * rest + _f32(4.1665795894e-2)
    y = y * rest + _f32(1.6666665459e-1)
    y = y * rest + _f32(5.0000001201e-1)
    y = y * rest * rest + rest + _f32(1.0)
    return y * _i32((whole + _i32(127)) << _i32(23)).view(np.float32)


@_kernel
def _quantize_row(row: Floats, integers: Int8s) -> np.float32:
    """Round ``row`` ``[D]`` into ``integers`` ``[D]`` and return the scale."""
    # Sizes are compared as integers, in the same order, where a NaN is the greatest.
    top = _i32(0)
    for d in range(len(row)):
        top = max(top, _i32(np.float32(row[d]).view(np.int32) & _NOT_SIGN))
    scale = max(_i32(top).view(np.float32) / _f32(STEPS), LEAST_SCALE)
    steps = _f32(1.0) / scale
    for d in range(len(row)):
        y = row[d] * steps
        integers[d] = np.int8(_i32(y + _f32(0.5)) if y >= 0 else _i32(y - _f32(0.5)))
    return scale


@_kernel
def quantize(x: Floats, integers: Int8s, scales: Floats) -> None:
    """Round each row of ``x`` ``[R, D]`` into ``integers`` ``[R, D]`` and ``scales`` ``[R]``."""
    for r in range(len(x)):
        scales[r] = _quantize_row(x[r], integers[r])


@_kernel
def normalize(x: Floats, gain: Floats, eps: float, integers: Int8s, scales: Floats) -> None:
    """Round each row behind an RMS norm.

    The layer behind it has ``sqrt(D)`` in its own scales, so a length takes the place of the root
    mean square.

    Args:
        x: ``[R, D]``.
        gain: ``[D]``, the norm's weight.
        eps: The norm's, times D.
        integers: ``[R, D]``, written.
        scales: ``[R]``, written.
    """
    row = np.empty_like(x[0])
    for r in range(len(x)):
        squares = _f32(0.0)
        for d in range(len(row)):
            squares += x[r, d] * x[r, d]
        for d in range(len(row)):
            row[d] = x[r, d] * gain[d]
        scales[r] = _quantize_row(row, integers[r]) / math.sqrt(squares + _f32(eps))


@_kernel
def rescale(
    product: Int32s, scales: Floats, columns: Floats, bias: Floats | None, y: Floats
) -> None:
    """Write ``product * scales * columns + bias``.

    Args:
        product: ``[R, D]`` of integers.
        scales: ``[R]`` of its rows.
        columns: ``[D]`` of its columns.
        bias: ``[D]``, or None.
        y: ``[R, D]``, written.
    """
    for r in range(len(y)):
        scale = scales[r]
        for d in range(y.shape[1]):
            y[r, d] = _f32(product[r, d]) * (scale * columns[d])
        if bias is not None:
            y[r] += bias


@_kernel
def add(x: Floats, product: Int32s, scales: Floats, columns: Floats) -> None:
    """Add a product's rows, ``product * scales * columns``, to ``x``.

    Args:
        x: ``[R, D]``, changed.
        product: ``[R, D]`` of integers.
        scales: ``[R]`` of its rows.
        columns: ``[D]`` of its columns.
    """
    for r in range(len(x)):
        scale = scales[r]
        for d in range(x.shape[1]):
            x[r, d] += _f32(product[r, d]) * (scale * columns[d])


@_kernel
def gate(
    product: Int32s,
    scales: Floats,
    columns: Floats,
    silu: bool,
    integers: Int8s,
    gated_scales: Floats,
) -> None:
    """Round ``activation(gate) * up`` of each row.

    GELU by its error function (Abramowitz and Stegun 1964, 7.1.26: within 1.5e-7).

    Args:
        product: ``[R, 2 F]`` of integers: gate, then up.
        scales: ``[R]`` of its rows.
        columns: ``[2 F]`` of its columns.
        silu: Whether the activation is SiLU, not GELU.
        integers: ``[R, F]``, written.
        gated_scales: ``[R]``, written.
    """
    width = integers.shape[1]
    row = np.empty(width, np.float32)
    for r in range(len(product)):
        scale = scales[r]
        for d in range(width):
            x = _f32(product[r, d]) * (scale * columns[d])
            size = abs(x)
            if silu:
                small = _exp(-size)
                share = (_f32(1.0) if x >= 0 else small) / (_f32(1.0) + small)
            else:
                z = size * _f32(0.70710678)
                t = _f32(1.0) / (_f32(1.0) + _f32(0.3275911) * z)
                y = _f32(1.061405429) * t - _f32(1.453152027)
                y = y * t + _f32(1.421413741)
                y = y * t - _f32(0.284496736)
                y = (y * t + _f32(0.254829592)) * t
                tail = _f32(0.5) * y * _exp(-z * z)
                share = _f32(1.0) - tail if x >= 0 else tail
            up = _f32(product[r, width + d]) * (scale * columns[width + d])
            row[d] = x * share * up
        gated_scales[r] = _quantize_row(row, integers[r])


@_kernel
def place(
    product: Int32s,
    scales: Floats,
    columns: Floats,
    turns: Floats,
    positions: Int64s,
    slots: Int64s,
    starts: Int64s,
    queries: Floats,
    keys: Bfloat16s,
    values: Bfloat16s,
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
        keys: ``[slots, kv_heads, T, head_dim]``, written to.
        values: As ``keys``.
    """
    heads, size = queries.shape[1:]
    kv_heads, half = keys.shape[1], size // 2
    rotated = np.empty(size, np.float32)
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
                _narrow(rotated, keys[slot, head - heads, start])
        for head in range(kv_heads):
            at = (heads + kv_heads + head) * size
            for d in range(size):
                rotated[d] = _f32(product[r, at + d]) * (scale * columns[at + d])
            _narrow(rotated, values[slot, head, start])


@_kernel
def _narrow(row: Floats, bits: Bfloat16s) -> None:
    """Write a row as bfloat16, rounded to nearest even."""
    for d in range(len(row)):
        x = np.uint32(np.float32(row[d]).view(np.uint32))
        odd = np.uint32((x >> np.uint32(16)) & np.uint32(1))
        bits[d] = np.uint16(np.uint32(x + np.uint32(0x7FFF) + odd) >> np.uint32(16))


@_kernel
def _wide(bits: np.uint16) -> np.float32:
    """Return what a bfloat16 stands for."""
    return np.uint32(np.uint32(bits) << np.uint32(16)).view(np.float32)


@_kernel
def attend(
    queries: Floats,
    keys: Bfloat16s,
    values: Bfloat16s,
    slots: Int64s,
    counts: Int64s,
    integers: Int8s,
    scales: Floats,
) -> None:
    """Attend from each row to the first rows of its slot, and round what comes of it.

    Args:
        queries: ``[R, heads, head_dim]``.
        keys: ``[slots, kv_heads, T, head_dim]``.
        values: As ``keys``.
        slots: ``[R]``, the slot of each row.
        counts: ``[R]``, how many rows of the slot it sees.
        integers: ``[R, heads head_dim]``, written.
        scales: ``[R]``, written.
    """
    heads, size = queries.shape[1:]
    group = heads // keys.shape[1]
    weights, row = np.empty(keys.shape[2], np.float32), np.empty(heads * size, np.float32)
    root = _f32(1.0) / _f32(math.sqrt(size))
    for r in range(len(queries)):
        slot, count = slots[r], counts[r]
        for head in range(heads):
            _weigh(queries[r, head], keys[slot, head // group], root, weights[:count])
            _mix(weights[:count], values[slot, head // group], row[head * size : (head + 1) * size])
        scales[r] = _quantize_row(row, integers[r])


@_kernel
def _weigh(query: Floats, keys: Bfloat16s, root: np.float32, weights: Floats) -> None:
    """Write the softmax of a query's scores, ``[count]``."""
    count, size = len(weights), len(query)
    t = 0
    while t + 4 <= count:  # four at a time read the query once
        a, b, c, d = _f32(0.0), _f32(0.0), _f32(0.0), _f32(0.0)
        for i in range(size):
            a += query[i] * _wide(keys[t, i])
            b += query[i] * _wide(keys[t + 1, i])
            c += query[i] * _wide(keys[t + 2, i])
            d += query[i] * _wide(keys[t + 3, i])
        weights[t], weights[t + 1], weights[t + 2], weights[t + 3] = a, b, c, d
        t += 4
    while t < count:
        a = _f32(0.0)
        for i in range(size):
            a += query[i] * _wide(keys[t, i])
        weights[t] = a
        t += 1
    top, total = weights[0], _f32(0.0)
    for t in range(count):
        top = max(top, weights[t])
    for t in range(count):
        weights[t] = _exp((weights[t] - top) * root)
    for t in range(count):
        total += weights[t]
    for t in range(count):
        weights[t] /= total


@_kernel
def _mix(weights: Floats, values: Bfloat16s, out: Floats) -> None:
    """Write the weighted sum of values, ``[head_dim]``."""
    count, size = len(weights), len(out)
    out[:] = _f32(0.0)
    t = 0
    while t + 4 <= count:
        a, b, c, d = weights[t], weights[t + 1], weights[t + 2], weights[t + 3]
        for i in range(size):
            out[i] += (
                a * _wide(values[t, i])
                + b * _wide(values[t + 1, i])
                + c * _wide(values[t + 2, i])
                + d * _wide(values[t + 3, i])
            )
        t += 4
    while t < count:
        for i in range(size):
            out[i] += weights[t] * _wide(values[t, i])
        t += 1

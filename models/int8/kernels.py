"""What stands between the integer products of the stack, each as one pass over its rows.

Few rows take microseconds of arithmetic. As operations of torch they take a hundred calls a layer,
which cost more than the sums; numba compiles each of these functions into one loop. They let go of
the interpreter's lock.

A row is computed alone, and every operation is rounded as it is written here, so its bits are the
same among any other rows and on any processor. Scales and rounding are those of
`models.int8.linear`. Arrays are C-contiguous numpy, which shares its memory with torch. A row that
has a NaN stays NaN in the float arrays.
"""

import math

import numpy as np

from models.int8.arrays import Floats, Int8s, Int32s
from models.int8.compiling import kernel
from models.int8.sums import sum_row

STEPS = 127
LEAST_SCALE = np.finfo(np.float32).tiny  # of a row of zeros

_f32, _i32 = np.float32, np.int32
_NOT_SIGN = _i32(0x7FFFFFFF)


@kernel
def exp(x: np.float32) -> np.float32:
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


@kernel
def greatest(row: Floats) -> np.float32:
    """Return the largest size of any number of ``row`` ``[D]``, NaN if there is one."""
    # Sizes are compared as integers, in the same order, where a NaN is the greatest.
    top = _i32(0)
    for d in range(len(row)):
        top = max(top, _i32(np.float32(row[d]).view(np.int32) & _NOT_SIGN))
    return _i32(top).view(np.float32)


@kernel
def quantize_row(row: Floats, integers: Int8s) -> np.float32:
    """Round ``row`` ``[D]`` into ``integers`` ``[D]`` and return the scale."""
    scale = max(greatest(row) / _f32(STEPS), LEAST_SCALE)
    steps = _f32(1.0) / scale
    for d in range(len(row)):
        y = row[d] * steps
        integers[d] = np.int8(_i32(y + _f32(0.5)) if y >= 0 else _i32(y - _f32(0.5)))
    return scale


@kernel
def quantize(x: Floats, integers: Int8s, scales: Floats) -> None:
    """Round each row of ``x`` ``[R, D]`` into ``integers`` ``[R, D]`` and ``scales`` ``[R]``."""
    for r in range(len(x)):
        scales[r] = quantize_row(x[r], integers[r])


@kernel
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
        for d in range(len(row)):
            row[d] = x[r, d] * x[r, d]
        squares = sum_row(row)
        for d in range(len(row)):
            row[d] = x[r, d] * gain[d]
        scales[r] = quantize_row(row, integers[r]) / math.sqrt(squares + _f32(eps))


@kernel
def rms_norm(x: Floats, gain: Floats, eps: float, y: Floats) -> None:
    """Write ``x / sqrt(mean(x^2) + eps) * gain`` (Zhang and Sennrich 2019, arXiv:1910.07467).

    Args:
        x: ``[R, D]``.
        gain: ``[D]``, the norm's weight.
        eps: The norm's.
        y: ``[R, D]``, written.
    """
    squares = np.empty_like(x[0])
    for r in range(len(x)):
        for d in range(len(squares)):
            squares[d] = x[r, d] * x[r, d]
        mean = sum_row(squares) / _f32(len(squares))
        factor = _f32(1.0) / _f32(math.sqrt(mean + _f32(eps)))
        for d in range(len(squares)):
            y[r, d] = x[r, d] * factor * gain[d]


@kernel
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


@kernel
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


@kernel
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
                small = exp(-size)
                share = (_f32(1.0) if x >= 0 else small) / (_f32(1.0) + small)
            else:
                z = size * _f32(0.70710678)
                t = _f32(1.0) / (_f32(1.0) + _f32(0.3275911) * z)
                y = _f32(1.061405429) * t - _f32(1.453152027)
                y = y * t + _f32(1.421413741)
                y = y * t - _f32(0.284496736)
                y = (y * t + _f32(0.254829592)) * t
                tail = _f32(0.5) * y * exp(-z * z)
                share = _f32(1.0) - tail if x >= 0 else tail
            up = _f32(product[r, width + d]) * (scale * columns[width + d])
            row[d] = x * share * up
        gated_scales[r] = quantize_row(row, integers[r])

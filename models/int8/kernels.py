"""Fused kernels between the integer products: quantisation, norms, residuals, activations.

Few rows take microseconds of arithmetic; as torch operators they would be a hundred calls a layer.
Each row is computed independently and every operation is rounded as written, so a row has the same
bits in every batch and on every processor. A row with a NaN stays NaN in the float arrays.

*Rows* are ``[R, ...]`` float32 or, quantised, int8; ``scales`` ``[R]``, one a row; ``columns`` the
scales of a product's columns. Arrays are C-contiguous, of a norm's ``y`` the rows; ``integers``,
their scales and ``y`` are written.
"""

import math

import numpy as np

from cpu.arrays import Floats, Int8s, Int32s
from cpu.compiling import kernel
from models.int8.row_sum import sum_row

INT8_MAX = 127  # on either side of 0
MIN_SCALE = np.finfo(np.float32).tiny  # of a row of zeros

_f32 = np.float32
_i32 = np.int32
_NOT_SIGN = _i32(0x7FFFFFFF)


@kernel
def exp(x: np.float32) -> np.float32:
    """Return e**x for x <= 0, with a relative error below 3e-7.

    A power of two, by its bits, times a polynomial (S. Moshier, Cephes, `expf`). Unlike libm's
    function it can be vectorised in a loop.
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
def max_abs(row: Floats) -> np.float32:
    """Return the largest absolute value of ``row`` ``[D]``, NaN if it has one."""
    # Absolute values are compared by their bits as integers: the same order, with NaN the largest.
    top = _i32(0)
    for d in range(len(row)):
        top = max(top, _i32(np.float32(row[d]).view(np.int32) & _NOT_SIGN))
    return _i32(top).view(np.float32)


@kernel
def quantize_row(row: Floats, integers: Int8s) -> np.float32:
    """Quantise ``row`` ``[D]`` into ``integers`` ``[D]`` and return the scale."""
    scale = max(max_abs(row) / _f32(INT8_MAX), MIN_SCALE)
    inverse = _f32(1.0) / scale
    for d in range(len(row)):
        y = row[d] * inverse
        integers[d] = np.int8(_i32(y + _f32(0.5)) if y >= 0 else _i32(y - _f32(0.5)))
    return scale


@kernel
def quantize(x: Floats, integers: Int8s, scales: Floats) -> None:
    """Quantise each row of ``x`` ``[R, D]`` into ``integers`` ``[R, D]`` and ``scales`` ``[R]``."""
    for r in range(len(x)):
        scales[r] = quantize_row(x[r], integers[r])


@kernel
def normalize(x: Floats, gain: Floats, eps: float, integers: Int8s, scales: Floats) -> None:
    """Quantise the RMS-normalised rows ``[R, D]``; ``eps`` is the norm's, times D.

    The layer that follows has ``sqrt(D)`` in its own scales, so the norm divides by the length of
    the row instead of its root mean square.
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
    """RMS norm: ``y = x / sqrt(mean(x^2) + eps) * gain`` (Zhang and Sennrich, arXiv:1910.07467)."""
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
    """Dequantise a product: ``y = product * scales * columns + bias``."""
    for r in range(len(y)):
        scale = scales[r]
        for d in range(y.shape[1]):
            y[r, d] = _f32(product[r, d]) * (scale * columns[d])
        if bias is not None:
            y[r] += bias


@kernel
def add(
    x: Floats, product: Int32s, scales: Floats, columns: Floats, bias: Floats | None = None
) -> None:
    """Dequantise a product, add its bias, and add it to the residual ``x``."""
    for r in range(len(x)):
        scale = scales[r]
        for d in range(x.shape[1]):
            x[r, d] += _f32(product[r, d]) * (scale * columns[d])
        if bias is not None:
            x[r] += bias


@kernel
def rectify(
    product: Int32s,
    scales: Floats,
    columns: Floats,
    bias: Floats,
    integers: Int8s,
    rectified_scales: Floats,
) -> None:
    """Quantise the positive part of each row ``[F]`` of a product with its bias."""
    row = np.empty(integers.shape[1], np.float32)
    for r in range(len(product)):
        scale = scales[r]
        for d in range(len(row)):
            x = _f32(product[r, d]) * (scale * columns[d]) + bias[d]
            row[d] = x if x > _f32(0.0) else x * _f32(0.0)  # a NaN stays one
        rectified_scales[r] = quantize_row(row, integers[r])


@kernel
def gelu_share(x: np.float32) -> np.float32:
    """Return what GELU multiplies x by.

    By its error function (Abramowitz and Stegun 1964, 7.1.26: within 1.5e-7).
    """
    z = abs(x) * _f32(0.70710678)
    t = _f32(1.0) / (_f32(1.0) + _f32(0.3275911) * z)
    y = _f32(1.061405429) * t - _f32(1.453152027)
    y = y * t + _f32(1.421413741)
    y = y * t - _f32(0.284496736)
    y = (y * t + _f32(0.254829592)) * t
    tail = _f32(0.5) * y * exp(-z * z)
    share: np.float32 = _f32(1.0) - tail if x >= 0 else tail
    return share


@kernel
def gate(
    product: Int32s,
    scales: Floats,
    columns: Floats,
    silu: bool,
    integers: Int8s,
    gated_scales: Floats,
) -> None:
    """Quantise ``activation(gate) * up`` of each row ``[2 F]`` of a product: SiLU or GELU."""
    width = integers.shape[1]
    row = np.empty(width, np.float32)
    for r in range(len(product)):
        scale = scales[r]
        for d in range(width):
            x = _f32(product[r, d]) * (scale * columns[d])
            if silu:
                small = exp(-abs(x))
                share = (_f32(1.0) if x >= 0 else small) / (_f32(1.0) + small)
            else:
                share = gelu_share(x)
            up = _f32(product[r, width + d]) * (scale * columns[width + d])
            row[d] = x * share * up
        gated_scales[r] = quantize_row(row, integers[r])

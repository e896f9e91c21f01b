"""The compiled function of a null head in integers; see `models.int8.null_head`."""

import math
from typing import NamedTuple

import numpy as np

from cpu.arrays import Floats, Int8s, Int64s, Uint8s
from cpu.compiling import kernel
from models.int8.kernels import gelu_share, quantize_row
from models.int8.processors import QUAD
from models.int8.product import COLUMNS, multiply
from models.int8.row_sum import sum_row

_f32 = np.float32


class Matrix(NamedTuple):
    """An `Int8Linear` as a compiled function takes it."""

    tiles: Uint8s
    columns: Floats  # the scale of each
    bias: Floats


class Head(NamedTuple):
    """A `NullHead` as a compiled function takes it: the norm, then the matrices."""

    gain: Floats
    bias: Floats
    eps: np.float32
    up: Matrix
    correction: Matrix
    narrow: Matrix
    wide: Matrix


@kernel
def guide_rows(states: Floats, guided: Int64s, head: Head, last: Matrix, y: Floats) -> None:
    """Write the logits of rows, and behind them what is predicted of those that are guided."""
    rows = len(states)
    count = len(guided)
    width = len(head.correction.columns)
    differences = np.empty((count, width), np.float32)
    predicted = np.empty((count, y.shape[1]), np.float32)
    _correct(states, guided, head, differences, predicted)
    integers = _integers(rows + count, last)
    scales = np.empty(rows + count, np.float32)
    for r in range(rows):
        scales[r] = quantize_row(states[r, :width], integers[r])
    for n in range(count):
        for d in range(width):
            differences[n, d] += states[guided[n], d]
        scales[rows + n] = quantize_row(differences[n], integers[rows + n])
    _multiplied(integers, scales, last, y)
    for n in range(count):
        for code in range(y.shape[1]):
            y[rows + n, code] += predicted[n, code]


@kernel
def _correct(
    states: Floats, guided: Int64s, head: Head, differences: Floats, predicted: Floats
) -> None:
    """Write what the hidden states ``[n, D]`` and the logits ``[n, V]`` differ by."""
    gain, bias, eps, up, correction, narrow, wide = head
    rows = len(guided)
    features = states.shape[1]
    integers = _integers(rows, up)
    scales = np.empty(rows, np.float32)
    row = np.empty(features, np.float32)
    squares = np.empty(features, np.float32)
    for r in range(rows):
        own = states[guided[r]]
        mean = sum_row(own) / _f32(features)
        for d in range(features):
            row[d] = own[d] - mean
            squares[d] = row[d] * row[d]
        factor = _f32(1.0) / _f32(math.sqrt(sum_row(squares) / _f32(features) + eps))
        for d in range(features):
            row[d] = row[d] * factor * gain[d] + bias[d]
        scales[r] = quantize_row(row, integers[r])
    inner = np.empty((rows, len(up.columns)), np.float32)
    _multiplied(integers, scales, up, inner)
    for r in range(rows):
        for d in range(inner.shape[1]):
            inner[r, d] *= gelu_share(inner[r, d])
    hidden = _integers(rows, correction)
    for r in range(rows):
        scales[r] = quantize_row(inner[r], hidden[r])
    _multiplied(hidden, scales, correction, differences)
    few = np.empty((rows, len(narrow.columns)), np.float32)
    _multiplied(hidden, scales, narrow, few)
    ranks = _integers(rows, wide)
    for r in range(rows):
        scales[r] = quantize_row(few[r], ranks[r])
    _multiplied(ranks, scales, wide, predicted)


@kernel
def _integers(rows: int, matrix: Matrix) -> Int8s:
    """Return room for rows that a matrix multiplies, zeros behind them."""
    return np.zeros((rows, matrix.tiles.shape[1] * QUAD), np.int8)


@kernel
def _multiplied(integers: Int8s, scales: Floats, matrix: Matrix, y: Floats) -> None:
    """Write the product of rows and a matrix in floats, with its bias."""
    product = np.empty((len(integers), len(matrix.tiles) * COLUMNS), np.int32)
    multiply(integers, matrix.tiles, product)
    for r in range(len(integers)):
        scale = scales[r]
        for d in range(y.shape[1]):
            y[r, d] = _f32(product[r, d]) * (scale * matrix.columns[d]) + matrix.bias[d]

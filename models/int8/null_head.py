"""A null head in integers, all of it in one compiled function; see `models.null_head`."""

from typing import NamedTuple

import numpy as np
from torch import Tensor, nn

from cpu.arrays import Floats, Int8s, Uint8s
from cpu.compiling import kernel
from models.int8.kernels import gelu_share, quantize_row
from models.int8.linear import Int8Linear
from models.int8.processors import QUAD
from models.int8.product import COLUMNS, multiply
from models.int8.row_sum import sum_row
from models.null_head import NullHead

_f32 = np.float32


class _Matrix(NamedTuple):
    """An `Int8Linear` as a compiled function takes it."""

    tiles: Uint8s
    columns: Floats  # the scale of each
    bias: Floats


class _Head(NamedTuple):
    """A `NullHead` as a compiled function takes it: the norm, then the matrices."""

    gain: Floats
    bias: Floats
    eps: np.float32
    up: _Matrix
    correction: _Matrix
    narrow: _Matrix
    wide: _Matrix


class Int8NullHead(nn.Module):
    """Replaces a `NullHead` of float32; has no state dict."""

    def __init__(self, head: NullHead) -> None:
        super().__init__()
        self._head = _Head(
            head.norm.weight.detach().numpy(),
            head.norm.bias.detach().numpy(),
            _f32(head.norm.eps),
            *map(_matrix, (head.up, head.correction, head.narrow, head.wide)),
        )
        self._differences = head.correction.out_features + head.wide.out_features

    def forward(self, states: Tensor) -> Tensor:
        """Return differences ``[R, D + V]`` of states ``[R, (1 + L) * D]``; see `NullHead`."""
        y = states.new_empty(len(states), self._differences)
        correct(states.contiguous().numpy(), self._head, y.numpy())
        return y


def _matrix(linear: nn.Linear) -> _Matrix:
    packed = Int8Linear(linear)
    bias = np.zeros_like(packed.scales) if packed.bias is None else packed.bias
    return _Matrix(packed.tiles, packed.scales, bias)


@kernel
def correct(states: Floats, head: _Head, y: Floats) -> None:
    """Write the differences of rows; see `Int8NullHead.forward`."""
    gain, bias, eps, up, correction, narrow, wide = head
    rows = len(states)
    features = states.shape[1]
    integers = _integers(rows, up)
    scales = np.empty(rows, np.float32)
    row = np.empty(features, np.float32)
    squares = np.empty(features, np.float32)
    for r in range(rows):
        mean = sum_row(states[r]) / _f32(features)
        for d in range(features):
            row[d] = states[r, d] - mean
            squares[d] = row[d] * row[d]
        factor = _f32(1.0) / _f32(np.sqrt(sum_row(squares) / _f32(features) + eps))
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
    width = len(correction.columns)
    _multiplied(hidden, scales, correction, y[:, :width])
    few = np.empty((rows, len(narrow.columns)), np.float32)
    _multiplied(hidden, scales, narrow, few)
    ranks = _integers(rows, wide)
    for r in range(rows):
        scales[r] = quantize_row(few[r], ranks[r])
    _multiplied(ranks, scales, wide, y[:, width:])


@kernel
def _integers(rows: int, matrix: _Matrix) -> Int8s:
    """Return room for rows that a matrix multiplies, zeros behind them."""
    return np.zeros((rows, matrix.tiles.shape[1] * QUAD), np.int8)


@kernel
def _multiplied(integers: Int8s, scales: Floats, matrix: _Matrix, y: Floats) -> None:
    """Write the product of rows and a matrix in floats, with its bias."""
    product = np.empty((len(integers), len(matrix.tiles) * COLUMNS), np.int32)
    multiply(integers, matrix.tiles, product)
    for r in range(len(integers)):
        scale = scales[r]
        for d in range(y.shape[1]):
            y[r, d] = _f32(product[r, d]) * (scale * matrix.columns[d]) + matrix.bias[d]

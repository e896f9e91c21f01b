"""Linear layers with int8 weights and activations, for CPUs.

Each output channel has its own scale, fixed at load; each row of activations gets its own when it
is quantised, so that a row has the same bits in every batch: a scale shared by the batch, as usual
in dynamic quantisation, would let other rows change them. Symmetric rounding to nearest, 127 steps
on either side (Jacob et al. 2018, arXiv:1712.05877, with the zero point at 0).

A norm before the layer is merged into it: dividing a row by its root mean square changes its scale
and none of its integers.
"""

import math
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Final

import numpy as np
import torch
from torch import Tensor, nn

from cpu.arrays import Floats, Int8s, Int32s, Uint8s
from models.int8 import kernels
from models.int8.processors import QUAD
from models.int8.product import COLUMNS, multiply, pack

_PARALLEL_BYTES: Final = 1 << 20  # smaller matrices are not worth distributing over threads


Packed = tuple[Uint8s, Floats]
"""Tiles of the integers of a matrix, and the scale of each output channel."""


def _packed(parameter: Tensor) -> Packed:
    weight = parameter.detach().float().contiguous()
    integers = np.empty(weight.shape, np.int8)
    scales = np.empty(len(weight), np.float32)
    kernels.quantize(weight.numpy(), integers, scales)
    return pack(integers.T), scales


class Int8Linear(nn.Module):
    """Replaces an `nn.Linear`, and the RMS norm before it if there is one; has no state dict.

    Args:
        packed: What was made of matrices; one that several layers share is packed once.

    Attributes:
        tiles: The integers of the matrix; see `models.int8.product.pack`.
        inputs: Number of input features.
        scales: ``[out]``, of each output channel; times ``sqrt(in)`` after a norm.
        bias: ``[out]``, or None.
        gain: ``[in]``, the norm's weight, or None without a norm.
        eps: The norm's epsilon times ``in``.
    """

    def __init__(
        self,
        linear: nn.Linear,
        norm: nn.RMSNorm | None = None,
        packed: dict[Tensor, Packed] | None = None,
    ) -> None:
        super().__init__()
        known = {} if packed is None else packed
        if linear.weight not in known:
            known[linear.weight] = _packed(linear.weight)
        self.tiles, scales = known[linear.weight]
        self.inputs = inputs = linear.in_features
        self.scales: Floats = scales * np.float32(1 if norm is None else math.sqrt(inputs))
        self.bias = None if linear.bias is None else linear.bias.detach().float().numpy()
        self.gain = None if norm is None else norm.weight.detach().float().numpy()
        self.eps = 0.0 if norm is None or norm.eps is None else norm.eps * inputs

    def forward(self, x: Tensor) -> Tensor:
        """Map ``[..., in]`` float32 to ``[..., out]``."""
        rows = x.reshape(-1, x.shape[-1]).contiguous().numpy()
        integers = np.empty(rows.shape, np.int8)
        scales = np.empty(len(rows), np.float32)
        self.quantize(rows, integers, scales)
        y = x.new_empty(len(rows), len(self.scales))
        kernels.rescale(self.multiply(integers), scales, self.scales, self.bias, y.numpy())
        return y.view(*x.shape[:-1], -1)

    def quantize(self, rows: Floats, integers: Int8s, scales: Floats) -> None:
        """Quantise input rows ``[R, in]``, normalised if the layer has a norm."""
        if self.gain is None:
            kernels.quantize(rows, integers, scales)
        else:
            kernels.normalize(rows, self.gain, self.eps, integers, scales)

    def multiply(self, integers: Int8s) -> Int32s:
        """Return the product of rows ``[R, in]``: ``[R, >= out]``, padded with columns of zeros."""
        if missing := -self.inputs % QUAD:
            integers = np.pad(integers, ((0, 0), (0, missing)))
        product = np.empty((len(integers), len(self.tiles) * COLUMNS), np.int32)
        threads = torch.get_num_threads()
        if threads > 1 and self.tiles.nbytes >= _PARALLEL_BYTES:
            self._multiply_parallel(integers, product, threads)
        else:
            multiply(integers, self.tiles, product)
        return product

    def _multiply_parallel(self, integers: Int8s, product: Int32s, threads: int) -> None:
        """Multiply with the output columns distributed over threads."""

        def multiply_share(first: int) -> None:
            last = first + share
            multiply(integers, self.tiles[first:last], product[:, first * COLUMNS : last * COLUMNS])

        share = -(-len(self.tiles) // threads)
        list(_threads(threads).map(multiply_share, range(0, len(self.tiles), share)))


@cache
def _threads(count: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(count, "product")

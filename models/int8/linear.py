"""Linear layers of 8-bit integers, for CPUs: a quarter of the bytes, and integer products.

Each output row of a matrix has its own scale, fixed at load; each row of activations gets one when
it comes. Between them stands a product of integers, which is exact, so that a row has the same bits
alone or among any others. A scale shared by the whole batch, as dynamic quantisation usually has,
would let a neighbour change them.

Symmetric rounding to nearest, 127 steps to either side (Jacob et al. 2018, arXiv:1712.05877, with
the zero point at 0).

A norm is not computed before the layer behind it: dividing a row by its root mean square changes
its scale and none of its integers.
"""

import math
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Final

import numpy as np
import torch
from torch import Tensor, nn

from models.int8 import kernels
from models.int8.arrays import Floats, Int8s, Int32s
from models.int8.processors import NEIGHBOURS
from models.int8.product import COLUMNS, lay, multiply

_SHARED_BYTES: Final = 1 << 20  # of a matrix, from which on sharing it costs less than it saves


class Int8Linear(nn.Module):
    """A linear layer in place of an `nn.Linear`, and of a norm before it if there is one.

    Float32 in and out, integers between. It is made from weights and never saved.

    Attributes:
        inputs: Numbers of a row that goes in.
        scales: ``[out]``, of each column of the product; behind a norm times ``sqrt(in)``.
        bias: ``[out]``, or None.
        gain: ``[in]``, the norm's weight, or None without a norm.
        eps: The norm's, times ``in``.
    """

    def __init__(self, linear: nn.Linear, norm: nn.RMSNorm | None = None) -> None:
        super().__init__()
        weight = linear.weight.detach().float().contiguous()
        integers, scales = np.empty(weight.shape, np.int8), np.empty(len(weight), np.float32)
        kernels.quantize(weight.numpy(), integers, scales)
        self.inputs = inputs = linear.in_features
        self._tiles = lay(integers.T)
        self.scales: Floats = scales * np.float32(1 if norm is None else math.sqrt(inputs))
        self.bias = None if linear.bias is None else linear.bias.detach().float().numpy()
        self.gain = None if norm is None else norm.weight.detach().float().numpy()
        self.eps = 0.0 if norm is None or norm.eps is None else norm.eps * inputs

    def forward(self, x: Tensor) -> Tensor:
        """Map ``[..., in]`` float32 to ``[..., out]``."""
        rows = x.reshape(-1, x.shape[-1]).contiguous().numpy()
        integers, scales = np.empty(rows.shape, np.int8), np.empty(len(rows), np.float32)
        self.round(rows, integers, scales)
        y = x.new_empty(len(rows), len(self.scales))
        kernels.rescale(self.multiply(integers), scales, self.scales, self.bias, y.numpy())
        return y.view(*x.shape[:-1], -1)

    def round(self, rows: Floats, integers: Int8s, scales: Floats) -> None:
        """Round what goes in, behind the norm if there is one.

        Args:
            rows: ``[R, in]``.
            integers: ``[R, in]``, written.
            scales: ``[R]``, written.
        """
        if self.gain is None:
            kernels.quantize(rows, integers, scales)
        else:
            kernels.normalize(rows, self.gain, self.eps, integers, scales)

    def multiply(self, integers: Int8s) -> Int32s:
        """Return the product with rows ``[R, in]``: ``[R, out]``, and columns of zeros behind."""
        if lacking := -self.inputs % NEIGHBOURS:
            integers = np.pad(integers, ((0, 0), (0, lacking)))
        product = np.empty((len(integers), len(self._tiles) * COLUMNS), np.int32)
        threads = torch.get_num_threads()
        if threads > 1 and self._tiles.nbytes >= _SHARED_BYTES:
            self._multiply_together(integers, product, threads)
        else:
            multiply(integers, self._tiles, product)
        return product

    def _multiply_together(self, integers: Int8s, product: Int32s, threads: int) -> None:
        """Give each thread some of the columns."""

        def some(first: int) -> None:
            last = first + share
            multiply(
                integers, self._tiles[first:last], product[:, first * COLUMNS : last * COLUMNS]
            )

        share = -(-len(self._tiles) // threads)
        list(_threads(threads).map(some, range(0, len(self._tiles), share)))


@cache
def _threads(count: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(count, "product")

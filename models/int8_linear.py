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

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from models import kernels
from models.kernels import Floats, Int8s, Int32s

_LINE = 64  # bytes that a cache reads at once


class Int8Linear(nn.Module):
    """A linear layer in place of an `nn.Linear`, and of a norm before it if there is one.

    Float32 in and out, integers between. It is made from weights and never saved.

    Attributes:
        weight: ``[out, in]`` int8.
        scales: ``[out]``, of the rows of ``weight``; behind a norm times ``sqrt(in)``.
        bias: ``[out]``, or None.
        gain: ``[in]``, the norm's weight, or None without a norm.
        eps: The norm's, times ``in``.
    """

    def __init__(self, linear: nn.Linear, norm: nn.RMSNorm | None = None) -> None:
        super().__init__()
        weight = linear.weight.detach().float().contiguous()
        integers, scales = torch.empty_like(weight, dtype=torch.int8), weight.new_empty(len(weight))
        kernels.quantize(weight.numpy(), integers.numpy(), scales.numpy())
        inputs = linear.in_features
        self.weight = _space_rows(integers)
        self.scales: Floats = scales.numpy() * np.float32(1 if norm is None else math.sqrt(inputs))
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
        """Return the product ``[R, out]`` with rows ``[R, in]``."""
        # int32 holds the sum exactly: 127 * 127 * in stays below 2**31 up to in = 133,000
        product: Int32s = torch._int_mm(torch.from_numpy(integers), self.weight.t()).numpy()
        return product


def _space_rows(weight: Tensor) -> Tensor:
    """Keep rows that start a power of two apart from sharing the same few lines of the cache.

    From two rows of activations on, torch reads the weight column by column. Two rows with
    ``[1024, 4096]`` take an eighth of the time so.
    """
    inputs = weight.shape[1]
    return F.pad(weight, (0, _LINE))[:, :inputs] if inputs % 512 == 0 else weight

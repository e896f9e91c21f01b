"""A null head in integers, all of it in one compiled function; see `models.null_head`."""

from collections.abc import Sequence

import numpy as np
from torch import Tensor, nn

from cpu.arrays import Int64s
from models.int8.linear import Int8Linear
from models.int8.null_kernel import Head, Matrix, guide_rows
from models.null_head import NullHead, NullLogits
from models.stack.batching import UNPADDED, Batching


class Int8NullHead(NullLogits):
    """Replaces a `NullHead` of float32; has no state dict."""

    def __init__(self, head: NullHead) -> None:
        super().__init__()
        self._head = Head(
            head.norm.weight.detach().numpy(),
            head.norm.bias.detach().numpy(),
            np.float32(head.norm.eps),
            *(
                _matrix(Int8Linear(one))
                for one in (head.up, head.correction, head.narrow, head.wide)
            ),
        )

    def logits(
        self, states: Tensor, guided: Sequence[int] | slice, head: nn.Module, batching: Batching
    ) -> Tensor:
        """Return the logits of rows and of the null condition; see `NullLogits`."""
        assert isinstance(head, Int8Linear), "an int8 null head needs an int8 output head"
        assert batching is UNPADDED, "rows of integers are independent of their batch"
        count = len(states)
        rows: Int64s = np.arange(count)[guided]
        y = states.new_empty(count + len(rows), len(head.scales))
        guide_rows(states.contiguous().numpy(), rows, self._head, _matrix(head), y.numpy())
        return y


def _matrix(linear: Int8Linear) -> Matrix:
    bias = np.zeros_like(linear.scales) if linear.bias is None else linear.bias
    return Matrix(linear.tiles, linear.scales, bias)

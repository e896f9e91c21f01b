"""Rows of zeros beside few rows, so that each of them has the same bits as in any larger batch.

On a CPU a product of one, two or three float32 rows is another kernel's, which sums in another
order; from four rows on, all rows are computed alike.
"""

from torch import Tensor, nn
from torch.nn import functional as F

LEAST_ROWS = 4


def pad_rows(x: Tensor, linear: nn.Module) -> Tensor:
    """Add rows of zeros to ``[B, D]`` where the layer that they go through needs it.

    Args:
        x: Float32.
        linear: The layer; one of integers needs none.

    Returns:
        ``[max(B, LEAST_ROWS), D]``, or ``x`` itself.
    """
    missing = LEAST_ROWS - len(x)
    if missing <= 0 or x.device.type != "cpu" or not isinstance(linear, nn.Linear):
        return x
    return F.pad(x, (0, 0, 0, missing))

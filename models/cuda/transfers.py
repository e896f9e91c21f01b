"""Uploads from host to device that neither side waits for."""

from collections.abc import Sequence

import torch
from torch import Tensor


def upload(rows: Sequence[Sequence[int]], target: Tensor) -> None:
    """Copy integers into a tensor, after the work already queued on its device.

    Args:
        rows: Rows of equal length.
        target: ``[len(rows), n]`` int64.
    """
    # Pinned memory is copied in the background; torch does not reuse it before that is done.
    numbers = torch.tensor(rows, dtype=torch.int64, pin_memory=target.is_cuda)
    target.copy_(numbers, non_blocking=True)

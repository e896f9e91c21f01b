"""Numbers on their way between host and device, without either waiting for the other."""

from collections.abc import Sequence

import torch
from torch import Tensor


def upload(rows: Sequence[Sequence[int]], to: Tensor) -> None:
    """Send whole numbers to a tensor of their shape, behind what is queued on its device already.

    Args:
        rows: All of one length.
        to: ``[len(rows), n]`` int64.
    """
    # Memory of the host that cannot be paged out is copied in the background; torch gives it to
    # nobody else before that is done.
    numbers = torch.tensor(rows, dtype=torch.int64, pin_memory=to.is_cuda)
    to.copy_(numbers, non_blocking=True)


class Readback:
    """A tensor's values on their way to the host: ask for them some steps later."""

    def __init__(self, values: Tensor) -> None:
        """Queue the copy behind what is queued already; the tensor may change afterwards.

        Args:
            values: Of any shape.
        """
        self._event: torch.cuda.Event | None = None
        if not values.is_cuda:
            self._values = values.clone()
            return
        self._values = torch.empty(values.shape, dtype=values.dtype, pin_memory=True)
        self._values.copy_(values, non_blocking=True)
        self._event = torch.cuda.Event()  # type: ignore[no-untyped-call]
        self._event.record()

    @property
    def arrived(self) -> bool:
        """Whether `wait` would not wait."""
        return self._event is None or bool(self._event.query())  # type: ignore[no-untyped-call]

    def wait(self) -> Tensor:
        """Return the values, on the host."""
        if self._event is not None:
            self._event.synchronize()
        return self._values

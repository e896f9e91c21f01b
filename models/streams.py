"""Queues of a device: the work of one thread need not stand behind that of another.

Without them all threads share one queue, and a step that takes half a millisecond waits for a pass
over seconds of speech. On a CPU there are none, and all of this does nothing.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor


class SideStream:
    """A queue of its own, for a worker that must not hold up the others, nor wait for them."""

    def __init__(self, device: torch.device) -> None:
        """Make the queue.

        Args:
            device: Whose.
        """
        self._stream: torch.cuda.Stream | None = None
        if device.type == "cuda":
            self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]

    @contextmanager
    def entered(self) -> Iterator[None]:
        """Queue here what this thread does within the context.

        It waits for nothing: tensors of another thread come as a `Handover`, and weights must be
        there before the first worker starts.
        """
        if self._stream is None:
            yield
        else:
            with torch.cuda.stream(self._stream):
                yield


class Handover:
    """A tensor on its way from one queue to another."""

    def __init__(self, tensor: Tensor) -> None:
        """Give it, in the thread whose queue computes it.

        Args:
            tensor: Not to be changed afterwards.
        """
        self._tensor = tensor
        self._event: torch.cuda.Event | None = None
        if tensor.is_cuda:
            self._event = torch.cuda.Event()  # type: ignore[no-untyped-call]
            self._event.record()

    def take(self) -> Tensor:
        """Return it, in the thread whose queue will use it; the host does not wait."""
        if self._event is not None:
            stream = torch.cuda.current_stream(self._tensor.device)
            stream.wait_event(self._event)
            # Its memory may be used anew once both queues are done with it.
            self._tensor.record_stream(stream)
        return self._tensor

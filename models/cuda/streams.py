"""Queues of a device: the work of one thread need not stand behind that of another.

Without them all threads share one queue, and a step that takes half a millisecond waits for a pass
over seconds of speech. On a CPU there are none, and all of this does nothing.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import torch


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

        It waits for nothing: what another thread gives comes by way of the host, and weights must
        be there before the first worker starts.
        """
        if self._stream is None:
            yield
        else:
            with torch.cuda.stream(self._stream):
                yield

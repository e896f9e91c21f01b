"""CUDA streams, so that one thread's work does not queue behind another's.

Without them all threads share one stream, and a step of half a millisecond waits for a pass over
seconds of speech. On a CPU there are no streams and nothing here has an effect.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import torch


class SideStream:
    """A CUDA stream of its own for a worker thread."""

    def __init__(self, device: torch.device) -> None:
        """Create the stream.

        Args:
            device: The device; none is created on a CPU.
        """
        self._stream: torch.cuda.Stream | None = None
        if device.type == "cuda":
            self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]

    @contextmanager
    def entered(self) -> Iterator[None]:
        """Make this the current stream of the thread within the context.

        It is not synchronised with other streams: data from other threads must come by way of the
        host, and weights must be loaded before the first worker starts.
        """
        if self._stream is None:
            yield
        else:
            with torch.cuda.stream(self._stream):
                yield

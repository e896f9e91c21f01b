"""CUDA streams, so that one thread's work does not queue behind another's.

Without them all threads share one stream, and a step of half a millisecond waits for a pass over
seconds of speech. On a CPU there are no streams and nothing here has an effect.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import torch


class Work:
    """What the calling thread has its device do, in order: its current CUDA stream."""

    def __init__(self, device: torch.device) -> None:
        """Look up the stream.

        Args:
            device: On a CPU there is none: work is done when it is called.
        """
        self._stream = torch.cuda.current_stream(device) if device.type == "cuda" else None

    def mark(self) -> "Mark":
        """Return the end of all that was queued so far. Any thread may call."""
        return Mark(self._stream)

    def wait_for(self, mark: "Mark") -> None:
        """Have what is queued from now on begin behind a mark; the caller does not wait."""
        if self._stream is not None and mark.event is not None:
            self._stream.wait_event(mark.event)


class Mark:
    """A point of the work on a stream.

    Attributes:
        event: None where there is no stream.
    """

    def __init__(self, stream: torch.cuda.Stream | None) -> None:
        """Mark the end of what the stream has been given."""
        self.event: torch.cuda.Event | None = None
        if stream is not None:
            self.event = torch.cuda.Event()  # type: ignore[no-untyped-call]
            self.event.record(stream)

    @property
    def passed(self) -> bool:
        """Whether all before it is done."""
        return self.event is None or self.event.query()  # type: ignore[no-untyped-call]


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

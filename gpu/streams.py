"""CUDA streams, so that one thread's work does not queue behind another's.

Without them all threads share one stream, and a step of half a millisecond waits for a pass over
seconds of speech. On a CPU there are no streams and nothing here has an effect.
"""

import torch


class Work:
    """What the calling thread has its device do, in order: its current CUDA stream."""

    def __init__(self, device: torch.device) -> None:
        self._stream = torch.cuda.current_stream(device) if device.type == "cuda" else None

    def mark(self) -> torch.cuda.Event | None:
        """Return the end of all that was queued so far; any thread may call."""
        return None if self._stream is None else self._stream.record_event()

    def wait_for(self, mark: torch.cuda.Event | None) -> None:
        """Have what is queued from now on begin behind a mark; the caller does not wait."""
        if self._stream is not None and mark is not None:
            self._stream.wait_event(mark)


def new_stream(device: torch.device) -> torch.cuda.Stream | None:
    """Return a stream for a worker thread, to be entered by `torch.cuda.stream`; None on a CPU.

    It is not synchronised with others: what comes from other threads must come by way of the host.
    """
    return torch.cuda.Stream(device) if device.type == "cuda" else None  # type: ignore[no-untyped-call]

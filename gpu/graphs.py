"""CUDA graphs: the kernels that a function launches, captured once and replayed in one call.

A host takes longer to launch a step's kernels than a GPU to run them. A captured function must work
on tensors that stay where they are, in fixed shapes, and must not synchronise. On a CPU the "graph"
is the function itself, so that the same code is tested there.
"""

import logging
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress

import torch

from gpu.lost import is_device_lost

log = logging.getLogger(__name__)

Replay = Callable[[], None]
"""Replays a function's work; results are in the tensors that it writes to."""

Capture = Callable[[Replay], Replay]
"""`Recorder.record`."""

WARM_UPS = 3
HIGH_PRIORITY = -1
LOW_PRIORITY = 0
_DEVICE = threading.RLock()


def device_lock(device: torch.device) -> AbstractContextManager[object]:
    """Return what is held by whoever records, and by threads beside level 0's that use a device.

    CUDA captures one graph at a time in a process, and a wait or allocation elsewhere breaks it.
    """
    return _DEVICE if device.type == "cuda" else nullcontext()


def eager(function: Replay) -> Replay:
    """Return a function itself: it is called where another would be replayed."""
    return function


class GraphCapturer:
    """Captures functions on one device, with one stream, and one memory pool for temporaries.

    No temporary outlives a call: results must be written to tensors allocated outside, and all
    graphs of one capturer be replayed on one stream. One of high priority goes before others.

    Args:
        warm_ups: How often a function is called first, as libraries initialise themselves in their
            first call, which cannot be captured. It is then replayed once, too; its writes must be
            harmless.

    Attributes:
        failed: Why some functions could not be captured.
    """

    def __init__(
        self, device: torch.device, *, priority: int = HIGH_PRIORITY, warm_ups: int = WARM_UPS
    ) -> None:
        self._device = device
        self._warm_ups = warm_ups
        self.failed = list[str]()
        # One stream, ever: torch hands out 32 in turn, and the next could be another thread's.
        self._stream: torch.cuda.Stream | None = None
        if device.type == "cuda":
            self._pool = torch.cuda.graph_pool_handle()
            self._stream = torch.cuda.Stream(  # type: ignore[no-untyped-call]
                device, priority=priority
            )

    def capture(self, function: Replay) -> Replay:
        """Capture a function and return what replays it; capturing itself runs nothing.

        What cannot be captured, twice, is returned as it is: it is then launched as usual, as
        everything is on a CPU.
        """
        if self._stream is None:
            for _ in range(self._warm_ups):
                function()
            return function
        why = ""
        with device_lock(self._device):
            for _ in range(2):
                try:
                    return self._captured(function, self._stream)
                except RuntimeError as error:
                    if is_device_lost(error):
                        raise
                    log.warning("a function cannot be captured", exc_info=True)
                    why = f"{type(error).__name__}: {error}".splitlines()[0][:200]
                    # Torch 2.11 to 2.13 go on counting the pool as being captured to.
                    with suppress(RuntimeError):
                        torch._C._cuda_endAllocateToPool(self._device.index or 0, self._pool)
                    self._pool = torch.cuda.graph_pool_handle()
        self.failed.append(why)
        return function

    def _captured(self, function: Replay, stream: torch.cuda.Stream) -> Replay:
        """Return the replay of a graph, which keeps its function alive, and so its tensors."""
        graph = torch.cuda.CUDAGraph()
        current = torch.cuda.current_stream(self._device)
        stream.wait_stream(current)
        with torch.cuda.stream(stream):
            for _ in range(self._warm_ups):
                function()
            # Not `torch.cuda.graph`, which waits for the device and empties the allocator's cache
            # before each: after a capture that failed that is an error of torch's own.
            graph.capture_begin(self._pool, capture_error_mode="thread_local")
            try:
                function()
            except BaseException:
                with suppress(RuntimeError):
                    graph.capture_end()
                raise
            graph.capture_end()
            if self._warm_ups:  # the first replay brings the graph to the device
                graph.replay()
        current.wait_stream(stream)

        def replay(_: Replay = function) -> None:
            graph.replay()

        return replay

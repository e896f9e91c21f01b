"""CUDA graphs: the kernels that a function launches, captured once and replayed in one call.

A step of a small model is some hundred short kernels, which a host takes longer to launch than a
GPU to run. A captured function must work on tensors that stay where they are, in fixed shapes, and
must not synchronise. On a CPU the "graph" is the function itself, so that the same code is tested
there.
"""

import logging
from collections.abc import Callable
from typing import Any

import torch

log = logging.getLogger(__name__)

Play = Callable[[], None]
"""Replays a function's work; results are in the tensors that it writes to."""

Record = Callable[..., Play]
"""`Recorder.record`."""

WARM_UPS = 3
HIGH_PRIORITY, LOW_PRIORITY = -1, 0


class Recorder:
    """Captures functions on one device, with one stream, and one memory pool for temporaries.

    They can share it because no temporary outlives a call: results must be written to tensors
    allocated outside. For the same reason all graphs of one recorder must be replayed on one
    stream. What is captured on a stream of high priority runs before the work of others.
    """

    def __init__(self, device: torch.device, *, priority: int = HIGH_PRIORITY) -> None:
        """Create stream and memory pool.

        Args:
            device: The device of the functions' tensors.
            priority: Of the kernels, `HIGH_PRIORITY` or `LOW_PRIORITY`.
        """
        self._device = device
        # One stream, ever: torch hands out 32 in turn, and the next could be another thread's.
        self._stream: torch.cuda.Stream | None = None
        if device.type == "cuda":
            self._pool = torch.cuda.graph_pool_handle()
            self._stream = torch.cuda.Stream(  # type: ignore[no-untyped-call]
                device, priority=priority
            )

    def record(self, function: Play, *, warm_ups: int = 0) -> Play:
        """Capture a function and return what replays it; capturing itself runs nothing.

        The function must have been called before, or be warmed up here: libraries initialise
        themselves in their first call, which cannot be captured. A function that cannot be
        captured is returned as it is.

        Args:
            function: On a CPU it is returned as it is.
            warm_ups: How often to call it first; its writes must then be harmless.
        """
        if self._stream is None:
            for _ in range(warm_ups):
                function()
            return function
        try:
            return _Graph(function, self._stream, self._pool, warm_ups).play
        except RuntimeError:
            log.warning("a step cannot be captured, and is launched as usual", exc_info=True)
            return function


class _Graph:
    """A captured graph, which keeps its function (and so the function's tensors) alive."""

    def __init__(self, function: Play, stream: torch.cuda.Stream, pool: Any, warm_ups: int) -> None:
        self._function = function
        self._graph = torch.cuda.CUDAGraph()
        current = torch.cuda.current_stream(stream.device)
        stream.wait_stream(current)
        with torch.cuda.stream(stream):
            for _ in range(warm_ups):
                function()
            # "thread_local": calls of other threads on the device do not break the capture.
            with torch.cuda.graph(
                self._graph, pool=pool, stream=stream, capture_error_mode="thread_local"
            ):
                function()
        current.wait_stream(stream)

    def play(self) -> None:
        self._graph.replay()

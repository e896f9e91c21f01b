"""CUDA graphs: the kernels that a function launches, captured once and replayed in one call.

A step of a small model is some hundred short kernels, which a host takes longer to launch than a
GPU to run. A captured function must work on tensors that stay where they are, in fixed shapes, and
must not synchronise. On a CPU the "graph" is the function itself, so that the same code is tested
there.
"""

from collections.abc import Callable
from typing import Any

import torch

Play = Callable[[], None]
"""Replays a function's work; results are in the tensors that it writes to."""

WARM_UPS = 3


class Recorder:
    """Captures functions on one device, with one memory pool for their temporaries.

    They can share it because no temporary outlives a call: results must be written to tensors
    allocated outside. For the same reason all graphs of one recorder must be replayed on one
    stream.
    """

    def __init__(self, device: torch.device) -> None:
        """Create the memory pool.

        Args:
            device: The device of the functions' tensors.
        """
        self._device = device
        self._pool = torch.cuda.graph_pool_handle() if device.type == "cuda" else None

    def record(self, function: Play, *, warm_ups: int = 0) -> Play:
        """Capture a function and return what replays it; capturing itself runs nothing.

        The function must have been called before, or be warmed up here: libraries initialise
        themselves in their first call, which cannot be captured.

        Args:
            function: On a CPU it is returned as it is.
            warm_ups: How often to call it first; its writes must then be harmless.
        """
        if self._pool is None:
            for _ in range(warm_ups):
                function()
            return function
        return _Graph(function, self._device, self._pool, warm_ups).play


class _Graph:
    """A captured graph, which keeps its function (and so the function's tensors) alive."""

    def __init__(self, function: Play, device: torch.device, pool: Any, warm_ups: int) -> None:
        self._function = function
        self._graph = torch.cuda.CUDAGraph()
        side = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        side.wait_stream(torch.cuda.current_stream(device))
        with torch.cuda.stream(side):
            for _ in range(warm_ups):
                function()
            # "thread_local": calls of other threads on the device do not break the capture.
            with torch.cuda.graph(
                self._graph, pool=pool, stream=side, capture_error_mode="thread_local"
            ):
                function()
        torch.cuda.current_stream(device).wait_stream(side)

    def play(self) -> None:
        self._graph.replay()

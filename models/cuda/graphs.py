"""CUDA graphs: what a function queues on a device, recorded once and queued again in one call.

A step of a small model is some hundred short kernels, and a host takes longer to queue them than a
GPU to run them. What is recorded must work on tensors that stay where they are, in shapes that stay
what they are, and ask the device nothing. On a CPU there is no such thing: a recording is the
function itself, so that the same code is tested there.
"""

from collections.abc import Callable
from typing import Any

import torch

Play = Callable[[], None]
"""Queues a function's work; its results are in the tensors that it writes to."""

WARM_UPS = 3


class Recorder:
    """Records functions on one device, whose scratch memory they share.

    They share it because nothing in it outlives a call: whatever is to be read later must be
    written to tensors made outside. For the same reason recordings of one recorder must be played
    on one stream.
    """

    def __init__(self, device: torch.device) -> None:
        """Begin with nothing recorded.

        Args:
            device: Where the functions' tensors are.
        """
        self._device = device
        self._pool = torch.cuda.graph_pool_handle() if device.type == "cuda" else None

    def record(self, function: Play, *, warm_ups: int = 0) -> Play:
        """Return what plays a function, which must have been called before or be warmed up here.

        Libraries that it calls set themselves up in the first call, and a compiler compiles;
        neither can be recorded. Recording itself runs nothing.

        Args:
            function: On a CPU it is what is returned.
            warm_ups: How often to call it first; what it writes then must do no harm.
        """
        if self._pool is None:
            for _ in range(warm_ups):
                function()
            return function
        return _Recording(function, self._device, self._pool, warm_ups).play


class _Recording:
    """A graph, and the function whose tensors it works on, which must not be freed before it."""

    def __init__(self, function: Play, device: torch.device, pool: Any, warm_ups: int) -> None:
        self._function = function
        self._graph = torch.cuda.CUDAGraph()
        aside = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        aside.wait_stream(torch.cuda.current_stream(device))
        with torch.cuda.stream(aside):
            for _ in range(warm_ups):
                function()
            # Another thread may use the device meanwhile: its calls are not this one's business.
            with torch.cuda.graph(
                self._graph, pool=pool, stream=aside, capture_error_mode="thread_local"
            ):
                function()
        torch.cuda.current_stream(device).wait_stream(aside)

    def play(self) -> None:
        self._graph.replay()

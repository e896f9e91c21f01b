"""What captures the functions of a loaded model on a GPU, and which could not be captured."""

import torch

from gpu.graphs import HIGH_PRIORITY, Capture, GraphCapturer

MOST_UNCAPTURED = 2
"""Functions that may be launched as usual; with more a GPU would be slower than a CPU."""


class Capturers:
    """One capturer for each stage, anew whenever what it captured went with the weights."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._by_stage: dict[str, GraphCapturer] = {}

    def renew(self, stage: str, *, priority: int = HIGH_PRIORITY) -> Capture:
        """Return what captures a stage from now on, on a CUDA stream of some priority."""
        capturer = self._by_stage[stage] = GraphCapturer(self._device, priority=priority)
        return capturer.capture

    @property
    def failed(self) -> tuple[str, ...]:
        """Why some functions could not be captured."""
        return tuple(why for capturer in self._by_stage.values() for why in capturer.failed)

    def check(self) -> None:
        """Raise RuntimeError if more than a few functions could not be captured."""
        failed = self.failed
        if len(failed) > MOST_UNCAPTURED:
            raise RuntimeError(f"{len(failed)} functions cannot be recorded: {failed[-1]}")

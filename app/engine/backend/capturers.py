"""What records the functions of a loaded model on a GPU, and which could not be recorded."""

import torch

from gpu.graphs import HIGH_PRIORITY, Record, Recorder

MOST_UNRECORDED = 2
"""Functions that may be launched as usual; with more a GPU would be slower than a CPU."""


class Capturers:
    """One recorder for each stage, anew whenever what it recorded went with the weights."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._by_stage: dict[str, Recorder] = {}

    def renew(self, stage: str, *, priority: int = HIGH_PRIORITY) -> Record:
        """Return what records a stage from now on, on a CUDA stream of some priority."""
        recorder = self._by_stage[stage] = Recorder(self._device, priority=priority)
        return recorder.record

    @property
    def failed(self) -> tuple[str, ...]:
        """Why some functions could not be recorded."""
        return tuple(why for recorder in self._by_stage.values() for why in recorder.failed)

    def check(self) -> None:
        """Raise RuntimeError if more than a few functions could not be recorded."""
        failed = self.failed
        if len(failed) > MOST_UNRECORDED:
            raise RuntimeError(f"{len(failed)} functions cannot be recorded: {failed[-1]}")

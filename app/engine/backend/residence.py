"""Where the weights are: on their device, or on the CPU while the engine is idle."""

import gc
import threading
from collections.abc import Callable, Sequence

import torch
from torch import nn


class Residence:
    """Moves weights off a device and back. Any thread may call."""

    def __init__(
        self, modules: Sequence[nn.Module], device: torch.device, away: torch.device
    ) -> None:
        self._modules, self._device, self._away = modules, device, away
        self._moving = threading.Lock()
        self.at_home = True  # whether they are on the device

    def bring(self) -> None:
        """Move the weights to the device, if they are not there."""
        with self._moving:
            if not self.at_home:
                self._move(self._device)
                self.at_home = True

    def send_away(self, idle: Callable[[], bool]) -> None:
        """Move the weights off the device and free their memory, if the engine is idle."""
        with self._moving:
            if self.at_home and idle():
                self._move(self._away)
                self.at_home = False
                gc.collect()
                if self._device.type == "cuda":
                    torch.cuda.empty_cache()

    def _move(self, device: torch.device) -> None:
        for module in self._modules:
            module.to(device)

"""Where the weights are: on the device, or away while nobody asks for anything."""

import gc
import threading
from collections.abc import Callable, Sequence

import torch
from torch import nn


class Residence:
    """Weights that can be sent away from a device and brought back. Any thread may call."""

    def __init__(
        self, modules: Sequence[nn.Module], device: torch.device, away: torch.device
    ) -> None:
        """Take modules that are on the device.

        Args:
            modules: Those that have weights.
            device: Where they work.
            away: Where they wait.
        """
        self._modules, self._device, self._away = modules, device, away
        self._moving = threading.Lock()
        self.at_home = True

    def bring(self) -> None:
        """Make sure that the weights are on the device."""
        with self._moving:
            if not self.at_home:
                self._move(self._device)
                self.at_home = True

    def send_away(self, still: Callable[[], bool]) -> None:
        """Send the weights away, and give their memory back.

        Args:
            still: Asked while nobody can `bring` them: whether nobody needs them.
        """
        with self._moving:
            if self.at_home and still():
                self._move(self._away)
                self.at_home = False
                gc.collect()
                if self._device.type == "cuda":
                    torch.cuda.empty_cache()

    def _move(self, device: torch.device) -> None:
        for module in self._modules:
            module.to(device)

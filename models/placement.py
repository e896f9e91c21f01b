"""Where the weights of a loaded model are: on which device, in which dtype."""

import gc
import threading
from collections.abc import Callable, Sequence

import torch
from torch import nn

from models.valle import Valle


def prepare_for(device: torch.device, model: Valle, dtype: torch.dtype | None = None) -> Valle:
    """Move a float32 model to a device in place, converting its weights, and return it.

    A ``dtype`` of None is bfloat16 on a GPU that computes in it and float32 elsewhere. Heads,
    rotations and logits stay float32: of logits in bfloat16 a thirtieth have a tied maximum.
    """
    if dtype is None:
        narrow = device.type == "cuda" and torch.cuda.is_bf16_supported(including_emulation=False)
        dtype = torch.bfloat16 if narrow else torch.float32
    heads = {id(parameter) for head in model.output_heads for parameter in head.parameters()}
    for parameter in model.parameters():
        own = torch.float32 if id(parameter) in heads else dtype
        placed = parameter.data.to(device, own)
        # The column-major order of `Valle.lay_out_for_steps` is good for a CPU only.
        parameter.data = placed.contiguous() if device.type == "cuda" else placed
    return model.to(device)  # buffers keep their dtype


class WeightOffloader:
    """Moves weights to the CPU while nobody needs them, and back. Any thread may call."""

    def __init__(
        self, modules: Sequence[nn.Module], device: torch.device, away: torch.device
    ) -> None:
        self._modules = modules
        self._device = device
        self._away = away
        self._moving = threading.Lock()
        self.at_home = True  # whether they are on the device

    def load(self) -> None:
        """Move the weights to the device, if they are not there."""
        with self._moving:
            if not self.at_home:
                self._move(self._device)
                self.at_home = True

    def offload(self, idle: Callable[[], bool]) -> None:
        """Move the weights off the device and free their memory, if ``idle`` says so."""
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

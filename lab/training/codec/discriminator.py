"""Tells speech from what the codec made of it, by spectra at several windows.

Convolutions over time and frequency that leave most of the frequencies behind at once: as in
UnivNet (Jang et al. 2021, arXiv:2106.07889), at a hundredth of its arithmetic. Its layers' outputs
are what feature matching compares (Larsen et al. 2016, arXiv:1512.09300).
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.parametrizations import weight_norm

from lab.training.codec.spectra import Magnitudes

WINDOWS = (512, 1024, 2048)
CHANNELS = (16, 24, 32, 32)
KERNELS = ((5, 3), (5, 3), (5, 3), (3, 3))  # frequencies, frames
STRIDES = ((4, 1), (3, 1), (2, 2), (1, 1))
COMPRESSION = 0.3  # exponent of magnitudes, so that quiet partials count

Features = list[list[Tensor]]
"""By window: what each layer gave, the last ``[B, 1, F, T]``, above zero for speech."""


class Discriminator(nn.Module):
    """One stack of convolutions a window."""

    def __init__(self) -> None:
        super().__init__()
        self.stacks = nn.ModuleList(_stack() for _ in WINDOWS)

    def forward(self, magnitudes: Magnitudes) -> Features:
        """Judge spectra."""
        found = []
        for window, stack in zip(WINDOWS, self.stacks, strict=True):
            x = magnitudes[window][:, None] ** COMPRESSION
            layers = []
            assert isinstance(stack, nn.ModuleList)
            for number, layer in enumerate(stack):
                x = layer(x)
                if number < len(stack) - 1:
                    x = F.leaky_relu(x, 0.1)
                layers.append(x)
            found.append(layers)
        return found


def _stack() -> nn.ModuleList:
    layers, before = nn.ModuleList(), 1
    for channels, kernel, stride in zip(CHANNELS, KERNELS, STRIDES, strict=True):
        padding = (kernel[0] // 2, kernel[1] // 2)
        layers.append(weight_norm(nn.Conv2d(before, channels, kernel, stride, padding)))
        before = channels
    layers.append(weight_norm(nn.Conv2d(before, 1, 3, padding=1)))
    return layers


def judging_loss(real: Features, made: Features) -> Tensor:
    """Return the hinge loss of the discriminator (Lim and Ye 2017, arXiv:1705.02894)."""
    losses = [
        F.relu(1 - a[-1].float()).mean() + F.relu(1 + b[-1].float()).mean()
        for a, b in zip(real, made, strict=True)
    ]
    return torch.stack(losses).mean()


def deceiving_losses(real: Features, made: Features) -> tuple[Tensor, Tensor]:
    """Return the codec's loss by the verdict, and by the difference of the layers' outputs."""
    verdict = torch.stack([F.relu(1 - layers[-1].float()).mean() for layers in made]).mean()
    return verdict, torch.stack([_unlike(a, b) for a, b in zip(real, made, strict=True)]).mean()


def _unlike(real: Sequence[Tensor], made: Sequence[Tensor]) -> Tensor:
    """Return the mean difference of all layers but the last, relative to their size."""
    parts = [
        (a.float().detach() - b.float()).abs().mean() / a.float().detach().abs().mean()
        for a, b in zip(real[:-1], made[:-1], strict=True)
    ]
    return torch.stack(parts).mean()

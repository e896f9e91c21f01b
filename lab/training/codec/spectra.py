"""Spectra of speech at several windows: what the codec is compared by."""

from collections.abc import Mapping

import torch
from torch import Tensor

from models.codecs.mel import mel_filters

BANDS_BY_WINDOW = {256: 32, 512: 64, 1024: 96, 2048: 100}
FLOOR = 1e-2
_NEVER_ZERO = 1e-8  # under a root: a norm has no gradient at zero, and silence is exactly zero

Magnitudes = Mapping[int, Tensor]
"""By window: ``[B, bins, frames]``."""


class Spectra:
    """Magnitudes at several windows, hop a quarter of the window."""

    def __init__(self, sample_rate_hz: int, device: torch.device) -> None:
        self._windows = {
            size: torch.hann_window(size, device=device) / size**0.5 for size in BANDS_BY_WINDOW
        }
        self._mel = {
            size: (filters / filters.sum(1, keepdim=True)).to(device)
            for size, bands in BANDS_BY_WINDOW.items()
            for filters in [mel_filters(bands, size, sample_rate_hz)]
        }

    def magnitudes(self, x: Tensor) -> Magnitudes:
        """Return the magnitudes of ``[B, N]`` at each window, for white noise all as large."""
        found = {}
        for size, window in self._windows.items():
            spectrum = torch.stft(x, size, size // 4, window=window, return_complex=True)
            power = spectrum.real.square() + spectrum.imag.square()
            found[size] = (power + _NEVER_ZERO).sqrt()
        return found

    def distance(self, wanted: Magnitudes, given: Magnitudes) -> tuple[Tensor, Tensor]:
        """Return the mean log-mel and the mean relative magnitude distance."""
        logs, magnitudes = [], []
        for size, mel in self._mel.items():
            a, b = wanted[size], given[size]
            logs.append(((mel @ a).clamp(min=FLOOR).log() - (mel @ b).clamp(min=FLOOR).log()).abs())
            magnitudes.append((a - b).norm() / a.norm())
        return torch.stack([part.mean() for part in logs]).mean(), torch.stack(magnitudes).mean()

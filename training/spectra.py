"""Mel spectra of speech: what the codec is compared by, and what its latent is tied to."""

import torch
from torch import Tensor

BANDS_BY_WINDOW = {128: 16, 256: 32, 512: 64, 1024: 96, 2048: 100}
LATENT_WINDOW = 1024
FLOOR = 1e-2
# Mean and deviation of the log-mel of speech with unit variance: the latent then has 0 and 1.
LATENT_MEAN, LATENT_DEVIATION = -0.7, 2.0


class MelSpectra:
    """Mel magnitudes at several windows, hop a quarter of the window."""

    def __init__(self, sample_rate_hz: int) -> None:
        self.windows = {size: torch.hann_window(size) for size in BANDS_BY_WINDOW}
        self.filters = {
            size: mel_filters(bands, size, sample_rate_hz)
            for size, bands in BANDS_BY_WINDOW.items()
        }

    def magnitude(self, x: Tensor, window: int, hop: int | None = None) -> Tensor:
        """Return the mel magnitudes ``[B, bands, frames]`` of ``[B, N]``."""
        spectrum = torch.stft(
            x, window, hop or window // 4, window=self.windows[window], return_complex=True
        )
        return self.filters[window] @ spectrum.abs()

    def distance(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """Return the mean log-mel and the mean relative magnitude distance of ``[B, N]`` pairs."""
        logs, magnitudes = [], []
        for size in BANDS_BY_WINDOW:
            a, b = self.magnitude(x, size), self.magnitude(y, size)
            logs.append((a.clamp(min=FLOOR).log() - b.clamp(min=FLOOR).log()).abs().mean())
            # 1e-8: the norm has no gradient at zero, and silence is exactly zero
            magnitudes.append(((a - b).pow(2).sum() + 1e-8).sqrt() / (a.pow(2).sum() + 1e-8).sqrt())
        return torch.stack(logs).mean(), torch.stack(magnitudes).mean()

    def latent(self, x: Tensor, hop: int, bands: int) -> Tensor:
        """Return the normalised log-mel ``[B, bands, N / hop]`` centred on each frame's start."""
        assert bands == BANDS_BY_WINDOW[LATENT_WINDOW]
        frames = x.shape[-1] // hop
        mel = self.magnitude(x, LATENT_WINDOW, hop)[..., :frames]
        return (mel.clamp(min=FLOOR).log() - LATENT_MEAN) / LATENT_DEVIATION


def mel_filters(bands: int, window: int, sample_rate_hz: int) -> Tensor:
    """Return triangular filters ``[bands, window / 2 + 1]`` of equal area on Slaney's mel scale.

    Linear below 1 kHz (200 / 3 Hz a mel), logarithmic above (27 mels for a factor of 6.4).
    Source: Slaney 1998, Auditory Toolbox.
    """
    step_hz, knee_hz = 200 / 3, 1000.0
    log_step = torch.log(torch.tensor(6.4)) / 27
    top_hz = torch.tensor(sample_rate_hz / 2)
    top = knee_hz / step_hz + torch.log(top_hz / knee_hz) / log_step
    mels = torch.linspace(0, float(top), bands + 2)
    above = knee_hz * torch.exp(log_step * (mels - knee_hz / step_hz))
    edges = torch.where(mels < knee_hz / step_hz, mels * step_hz, above)
    frequencies = torch.linspace(0, sample_rate_hz / 2, window // 2 + 1)
    rising = (frequencies - edges[:-2, None]) / (edges[1:-1] - edges[:-2])[:, None]
    falling = (edges[2:, None] - frequencies) / (edges[2:] - edges[1:-1])[:, None]
    triangles = torch.minimum(rising, falling).clamp(min=0)
    return triangles * (2 / (edges[2:] - edges[:-2]))[:, None]

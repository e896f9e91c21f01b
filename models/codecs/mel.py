"""Mel filter banks over the bins of a spectrum."""

import torch
from torch import Tensor


def mel_filters(bands: int, window: int, sample_rate_hz: int) -> Tensor:
    """Return triangular filters ``[bands, window / 2 + 1]`` of equal area on Slaney's mel scale.

    Linear below 1 kHz (200 / 3 Hz a mel), logarithmic above (27 mels for a factor of 6.4).
    Source: Slaney 1998, Auditory Toolbox.
    """
    step_hz = 200 / 3
    knee_hz = 1000.0
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

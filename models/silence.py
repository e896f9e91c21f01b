"""Which codes of a codec's level 0 are silence: measured, because no codec says so."""

import torch
from torch import Tensor

from models.codec import Codec

SECONDS = 1.0
LEVELS_DBFS = (-torch.inf, *range(-90, -55, 5))
"""How loud the noise is that counts as silence, up to where a quiet room begins. In small steps:
the built-in codec has other codes for each 10 dB."""


def silent_codes(codec: Codec) -> Tensor:
    """Encode silence and noise that nobody hears; the same codec gives the same codes.

    Args:
        codec: On the device to use.

    Returns:
        ``(V,)`` bool, true for the codes of level 0 that came of it.
    """
    device = codec.quantizer.codebooks.device
    samples = round(SECONDS * codec.config.sample_rate_hz)
    noise = torch.randn(samples, generator=torch.Generator().manual_seed(0)).to(device)
    silent = torch.zeros(codec.config.codes, dtype=torch.bool, device=device)
    for level_dbfs in LEVELS_DBFS:
        silent[codec.encode(noise * 10 ** (level_dbfs / 20))[:, 0]] = True
    return silent

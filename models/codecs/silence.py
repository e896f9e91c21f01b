"""Which codes of a codec's level 0 are silence: measured, because no codec says so."""

from pathlib import Path
from typing import Final

import torch
from torch import Tensor

from models.codecs.encodec import Encodec
from models.codecs.shipped_codes import codec_digest, read_codes, write_codes
from models.codecs.spectral import SpectralCodec

SHIPPED: Final = "silence.codes.safetensors"
"""In a model's folder: what `silent_codes` gave for its codec; other processors round otherwise."""

SECONDS = 1.0
LEVELS_DBFS = (-torch.inf, *range(-90, -55, 5))
"""How loud the noise is that counts as silence, up to where a quiet room begins. In small steps:
the built-in codec has other codes for each 10 dB."""


def silent_codes(codec: Encodec | SpectralCodec) -> Tensor:
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


def known_silence(
    codec: Encodec | SpectralCodec, folder: Path, digest: str | None = None
) -> Tensor:
    """Return what `silent_codes` does, as it was stored beside the codec if it was.

    Args:
        codec: On the device to use.
        folder: Of the model.
        digest: The codec's `codec_digest`; None: it is computed here.

    Raises:
        ShippedCodesError: The file cannot be read.
    """
    path = folder / SHIPPED
    found = read_codes(path, digest or codec_digest(codec)) if path.is_file() else None
    if found is None:
        return silent_codes(codec)
    silent = torch.zeros(codec.config.codes, dtype=torch.bool)
    silent[found[:, 0]] = True
    return silent.to(codec.quantizer.codebooks.device)


def store_silence(codec: Encodec | SpectralCodec, folder: Path) -> int:
    """Store what `silent_codes` gives beside a codec; return how many codes those are."""
    codes = torch.nonzero(silent_codes(codec))
    write_codes(folder / SHIPPED, codes, codec_digest(codec))
    return len(codes)

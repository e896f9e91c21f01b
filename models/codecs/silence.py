"""The level-0 codes of silence, measured by encoding it."""

from pathlib import Path
from typing import Final

import torch

from models.codecs.interface import Codec
from models.codecs.shipped_codes import codec_digest, read_codes

SHIPPED: Final = "silence.codes.safetensors"
"""File in a model's folder with the result of `silent_codes` for its codec.

Stored because encoding rounds differently on other processors."""

SECONDS = 1.0
LEVELS_DBFS = (-torch.inf, *range(-90, -55, 5))
"""Levels of the noise that counts as silence, up to that of a quiet room. In small steps: the
built-in codec has other codes every 10 dB."""


def silent_codes(codec: Codec) -> tuple[int, ...]:
    """Return the level-0 codes of silence and inaudible noise, ascending; always the same."""
    device = codec.quantizer.codebooks.device
    samples = round(SECONDS * codec.config.sample_rate_hz)
    noise = torch.randn(samples, generator=torch.Generator().manual_seed(0)).to(device)
    found = set[int]()
    for level_dbfs in LEVELS_DBFS:
        # A codec that restores recordings would take the noise away.
        codes = codec.encode(noise * 10 ** (level_dbfs / 20), as_it_is=True)
        found.update(codes[:, 0].tolist())
    return tuple(sorted(found))


def known_silence(codec: Codec, folder: Path, digest: str | None = None) -> tuple[int, ...]:
    """Return `silent_codes`, from the file beside the codec if it has this codec's digest."""
    path = folder / SHIPPED
    found = read_codes(path, digest or codec_digest(codec)) if path.is_file() else None
    return silent_codes(codec) if found is None else tuple(found[:, 0].tolist())

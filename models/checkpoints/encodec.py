"""EnCodec's published tensors: weight norm folded, codebooks stacked, names otherwise as ours.

The official file is a pickle of tensors. It is fetched by us, checked by the hash in its name as
upstream does, read without running anything, and kept as safetensors.
"""

import re
from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

from models.checkpoints.download import DownloadError, fetch
from models.checkpoints.files import CheckpointError, fill, read_tensors
from models.checkpoints.pickles import convert_once
from models.codecs.encodec import Encodec
from models.config import CodecConfig

OFFICIAL_URL = "https://dl.fbaipublicfiles.com/encodec/v0/encodec_24khz-d7cc33bc.th"
_HASH = re.compile(r"-([0-9a-f]+)\.th")
_CODEBOOK = re.compile(r"quantizer\.vq\.layers\.(\d+)\._codebook\.(\w+)")


def official_file(
    cache: Path,
    *,
    config: CodecConfig | None = None,
    offline: bool = False,
    url: str = OFFICIAL_URL,
) -> Path:
    """Return the official weights as safetensors under our names, fetched and converted once.

    Args:
        cache: Folder of codecs that were downloaded and converted.
        config: Its shape; None is EnCodec at 24 kHz and 6 kbps.
        offline: Whether the network is out of bounds.
        url: Of the pickle; its name holds the beginning of its SHA-256.

    Raises:
        DownloadError: It is not to be had.
        CheckpointError: It is not what it should be, or there is no room for it.
    """
    folder = cache.expanduser() / "encodec"
    pickle = folder / url.rpartition("/")[2]
    converted = pickle.with_suffix(".safetensors")
    if converted.is_file():
        return converted
    if offline and not pickle.is_file():
        raise DownloadError(f"EnCodec is not at {converted}, and offline nothing is downloaded")
    found = _HASH.search(pickle.name)
    if found is None:
        raise CheckpointError(f"{url}: the name holds no hash")
    fetch(url, pickle, sha256=found[1])
    shape = config or CodecConfig()
    convert_once(pickle, converted, lambda tensors: codec_from_encodec(tensors, shape))
    pickle.unlink(missing_ok=True)
    return converted


def load_official(path: Path, config: CodecConfig | None = None) -> Encodec:
    """Load what `official_file` returned, in fp32.

    Raises:
        CheckpointError: It is missing, damaged or of another shape.
    """
    return fill(Encodec(config or CodecConfig()), read_tensors([path]), str(path))


def codec_from_encodec(tensors: Mapping[str, Tensor], config: CodecConfig) -> Encodec:
    """Return a codec with the weights of an `EncodecModel`'s state dict.

    Published models have 32 codebooks, of which the bandwidth chooses; the config's levels are
    kept.

    Raises:
        CheckpointError: A tensor is missing, unknown or of another shape.
    """
    folded: dict[str, Tensor] = {}
    books: dict[int, Tensor] = {}
    for name, tensor in tensors.items():
        if found := _CODEBOOK.fullmatch(name):
            # the moving averages beside `embed` are of use in training only
            if found[2] == "embed":
                books[int(found[1])] = tensor
        elif name.endswith(".weight_g"):
            stem = name.removesuffix(".weight_g")
            direction = tensors.get(f"{stem}.weight_v")
            if direction is None:
                raise CheckpointError(f"encodec: tensor {stem}.weight_v is missing")
            # w = g v / |v| over all but the first dimension (Salimans and Kingma 2016)
            length = direction.flatten(1).norm(dim=1).view(-1, *[1] * (direction.ndim - 1))
            folded[f"{stem}.weight"] = tensor * direction / length
        elif not name.endswith(".weight_v"):
            folded[name] = tensor
    if sorted(books) != list(range(len(books))) or len(books) < config.levels:
        raise CheckpointError(
            f"encodec: codebooks {sorted(books)} found, {config.levels} levels wanted"
        )
    folded["quantizer.codebooks"] = torch.stack([books[level] for level in range(config.levels)])
    return fill(Encodec(config), folded, "encodec")

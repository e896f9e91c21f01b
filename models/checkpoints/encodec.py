"""The official EnCodec weights: download, and conversion to our tensor names.

Weight norm is folded and codebooks are stacked; other names are unchanged. The official file is a
pickle of tensors, verified by the hash in its name as upstream does, unpickled without running
code.
"""

import re
from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

from models.checkpoints.files import CheckpointError, convert_once, fill, read_tensors
from models.checkpoints.hub import DownloadError, fetch
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
    """Return the official weights as a safetensors file, downloaded and converted once.

    The name of the pickle at ``url`` holds the leading digits of its SHA-256. Without a
    configuration it is EnCodec at 24 kHz and 6 kbps.
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
    """Load the file of `official_file`, in float32."""
    return fill(Encodec(config or CodecConfig()), read_tensors([path]), str(path))


def codec_from_encodec(tensors: Mapping[str, Tensor], config: CodecConfig) -> Encodec:
    """Return a codec with the weights of the `encodec` package's `EncodecModel`.

    Published models have 32 codebooks, of which the bandwidth selects the first; the first
    ``config.levels`` are loaded. Raises CheckpointError if a tensor is missing, unknown or of
    another shape.
    """
    folded: dict[str, Tensor] = {}
    books: dict[int, Tensor] = {}
    for name, tensor in tensors.items():
        if found := _CODEBOOK.fullmatch(name):
            # the moving averages beside `embed` are used in training only
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

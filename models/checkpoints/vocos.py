"""The published Vocos weights for EnCodec: download, and conversion to our tensor names."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from torch import Tensor

from models.checkpoints.files import convert_once, fill, read_tensors
from models.checkpoints.hub import HubFile, obtain
from models.codecs.vocos import Vocos
from models.config import VocosConfig

PUBLISHED: Final = HubFile(
    repo="charactr/vocos-encodec-24khz",
    revision="4e61d082c08045a4c11e5b148ad93b1d0c591a14",
    path="pytorch_model.bin",
    sha256="7e95bb260b74a1bfc43c52d355831c951acb81c8960e9c62b79bd2b3ab1e3a90",
    licence="MIT",
)

_OURS: Final = {
    "feature_extractor.codebook_weights": "codebooks",
    "head.istft.window": "window",
    "head.out.weight": "out.weight",
    "head.out.bias": "out.bias",
}


def vocos_file(
    cache: Path,
    *,
    config: VocosConfig | None = None,
    offline: bool = False,
    wanted: HubFile = PUBLISHED,
    endpoint: str | None = None,
) -> Path:
    """Return the weights as a safetensors file, downloaded and converted once."""
    converted = converted_file(cache, wanted)
    if not converted.is_file():
        pickle = obtain(wanted, offline=offline, endpoint=endpoint)
        shape = config or VocosConfig()
        convert_once(pickle, converted, lambda tensors: vocos_from_published(tensors, shape))
    return converted


def converted_file(cache: Path, wanted: HubFile = PUBLISHED) -> Path:
    """Return the path of the converted file, whether or not it exists."""
    return cache.expanduser() / "vocos" / wanted.revision / "vocos.safetensors"


def load_vocos(path: Path, config: VocosConfig | None = None) -> Vocos:
    """Load the file of `vocos_file`, in float32."""
    return fill(Vocos(config or VocosConfig()), read_tensors([path]), str(path))


def vocos_from_published(tensors: Mapping[str, Tensor], config: VocosConfig) -> Vocos:
    """Return a decoder with the weights of the published state dict."""
    vocos = Vocos(config)
    kept = {
        _OURS.get(name, name.removeprefix("backbone.")): tensor for name, tensor in tensors.items()
    }
    books = kept.get("codebooks")
    if books is not None and books.numel() == vocos.codebooks.numel():
        kept["codebooks"] = books.view_as(vocos.codebooks)  # published as one table of all levels
    return fill(vocos, kept, "vocos")

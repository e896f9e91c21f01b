"""The published Vocos for EnCodec: fetched, checked, converted once, loaded.

Like EnCodec's own weights it is a pickle of tensors, checked by its hash and kept as safetensors.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from torch import Tensor

from models.checkpoints.files import fill, read_tensors
from models.checkpoints.hub import HubFile, obtain
from models.checkpoints.pickles import convert_once
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
    """Return the weights as safetensors under our names, fetched and converted once.

    Args:
        cache: Folder of what was converted.
        config: Its shape; None is the published one.
        offline: Whether the network is out of bounds.
        wanted: The pickle.
        endpoint: Of the hub; None is the public one, or what HF_ENDPOINT names.

    Raises:
        DownloadError: It is not to be had.
        CheckpointError: It is not what it should be, or there is no room for it.
    """
    converted = converted_file(cache, wanted)
    if not converted.is_file():
        pickle = obtain(wanted, offline=offline, endpoint=endpoint)
        shape = config or VocosConfig()
        convert_once(pickle, converted, lambda tensors: vocos_from_published(tensors, shape))
    return converted


def converted_file(cache: Path, wanted: HubFile = PUBLISHED) -> Path:
    """Return where the safetensors of a pickle lie, once it is converted."""
    return cache.expanduser() / "vocos" / wanted.revision / "vocos.safetensors"


def load_vocos(path: Path, config: VocosConfig | None = None) -> Vocos:
    """Load what `vocos_file` returned, in fp32.

    Raises:
        CheckpointError: It is missing, damaged or of another shape.
    """
    return fill(Vocos(config or VocosConfig()), read_tensors([path]), str(path))


def vocos_from_published(tensors: Mapping[str, Tensor], config: VocosConfig) -> Vocos:
    """Return a decoder with the weights of upstream's state dict.

    Raises:
        CheckpointError: A tensor is missing, unknown or of another shape.
    """
    vocos = Vocos(config)
    kept = {
        _OURS.get(name, name.removeprefix("backbone.")): tensor for name, tensor in tensors.items()
    }
    books = kept.get("codebooks")
    if books is not None and books.numel() == vocos.codebooks.numel():
        kept["codebooks"] = books.view_as(vocos.codebooks)  # published as one table of all levels
    return fill(vocos, kept, "vocos")

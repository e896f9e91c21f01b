"""What `TTS_MODEL` names, loaded: the built-in voice, a folder, a published file, the hub's."""

from pathlib import Path

import torch

from models.checkpoints.builtin import SpeechModel, load_lm, load_speech_model
from models.checkpoints.encodec import load_official, official_file
from models.checkpoints.files import CheckpointError, sha256_of
from models.checkpoints.hub import CACHE, locate
from models.checkpoints.public import AS_FILED, SUFFIXES, Switches, find_file, load_public

VOICES = Path(__file__).resolve().parents[2] / "weights"
"""Where voices come from for a model that brings none."""


def open_speech_model(
    name: str | Path,
    device: torch.device,
    *,
    cache: Path = Path(CACHE),
    offline: bool = False,
    switches: Switches = AS_FILED,
) -> SpeechModel:
    """Load a model with its codec, fetching what is not here.

    A model without a codec of its own gets the official EnCodec, which public checkpoints were
    trained with.

    Args:
        name: A folder, a published file, or a name as `models.checkpoints.hub.find` reads it.
        device: Where to.
        cache: Folder of what was downloaded.
        offline: Whether the network is out of bounds.
        switches: What to set against a published file.

    Raises:
        CheckpointError: It is not to be had, damaged, of no known layout, or does not belong
            together.
    """
    path = locate(str(name), cache=cache, offline=offline)
    if (path / "codec.json").is_file():
        return load_speech_model(path, device)
    if (path / "lm.json").is_file():
        model, files = load_lm(path), sorted(path.glob("lm-*.safetensors"))
    elif path.is_file() or (path.is_dir() and any(map(is_published, path.iterdir()))):
        model, files = load_public(path, switches), [find_file(path)]
    else:
        raise CheckpointError(f"{path} is neither a model's folder nor a published file")
    if not model.config.phoneme_vocabulary:
        raise CheckpointError(
            f"{path}: no vocabulary of phonemes in its metadata; put the tokenizer.json of the"
            " repository beside it"
        )
    converted = official_file(cache, offline=offline)
    codec = load_official(converted)
    if (model.config.levels, model.config.codes) != (codec.config.levels, codec.config.codes):
        raise CheckpointError(
            f"{path}: the model speaks {model.config.levels} levels of {model.config.codes} codes,"
            f" EnCodec {codec.config.levels} of {codec.config.codes}"
        )
    digest = sha256_of([*files, converted])
    folder = path if (path / "voices").is_dir() else VOICES
    return SpeechModel(model.config.name, digest, folder, model.to(device), codec.to(device))


def is_published(file: Path) -> bool:
    """Tell by its name whether a file may be a published checkpoint."""
    return file.suffix in SUFFIXES and not file.name.startswith("lm-")

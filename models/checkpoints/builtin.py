"""The built-in layout: a folder with configurations in JSON and weights in safetensors.

codec.json  codec.safetensors     the codec
prior.safetensors                 what clean speech looks like to it, if it restores recordings
lm.json     lm-*.safetensors      the language model, in parts small enough for a git host; what
                                  guides it in one row, if it has that, is a part of its own
SHA256SUMS                        hashes of the weights, see `models.checkpoints.files`
voices/                           voices, see `models.voices.voice`
"""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import TypeVar

import torch
from pydantic import BaseModel, ValidationError
from torch import Tensor

from models.checkpoints.files import (
    CheckpointError,
    check_sums,
    fill,
    read_tensors,
    write_sums,
    write_tensors,
)
from models.codecs.encodec import Encodec
from models.codecs.interface import Codec
from models.codecs.spectral import MAGNITUDE_FLOOR, SpectralCodec
from models.codecs.speech_prior import SpeechPrior
from models.config import (
    CodecConfig,
    ModelConfig,
    NullHeadConfig,
    SpectralCodecConfig,
    first_problem,
)
from models.valle import Valle

FILE_BYTES = 14 * 2**20
PRIOR = "prior.safetensors"
NULL_HEAD = "lm-null-head.safetensors"

_Config = TypeVar("_Config", bound=BaseModel)


class _Architecture(BaseModel):
    architecture: str = "encodec"


def load_lm(folder: Path) -> Valle:
    """Load the language model of a folder in float32."""
    model = Valle(read_config(folder / "lm.json", ModelConfig))
    files = lm_files(folder)
    if not files:
        raise CheckpointError(f"{folder} holds no lm-*.safetensors")
    fill(model, read_tensors(files), str(folder)).lay_out_for_steps()
    check_sums(files)
    return model


def load_codec(folder: Path) -> Codec:
    """Load the codec of a folder in float32."""
    config = read_codec_config(folder)
    file = folder / "codec.safetensors"
    codec = SpectralCodec(config) if isinstance(config, SpectralCodecConfig) else Encodec(config)
    fill(codec, read_tensors([file]), str(file))
    if isinstance(codec, SpectralCodec) and (folder / PRIOR).exists():
        codec.prior = _read_prior(folder / PRIOR, codec.config.bands)
    check_sums(codec_files(folder))
    return codec


def _read_prior(path: Path, bands: int) -> SpeechPrior:
    """Read what clean speech looks like to a codec of so many bands."""
    tensors = read_tensors([path])
    shapes = {name: tuple(tensor.shape) for name, tensor in tensors.items()}
    if shapes != {"mean": (bands,), "covariance": (bands, bands)}:
        raise CheckpointError(f"{path}: tensors {shapes} are no prior of {bands} bands")
    return SpeechPrior(
        tensors["mean"].double(), tensors["covariance"].double(), math.log(MAGNITUDE_FLOOR)
    )


def save_prior(folder: Path, prior: SpeechPrior) -> None:
    """Write a prior as `load_codec` reads it, replacing an existing one."""
    tensors = {"mean": prior.mean, "covariance": prior.covariance}
    write_tensors(folder / PRIOR, tensors, torch.float32)
    write_sums([folder / PRIOR])


def read_codec_config(folder: Path) -> CodecConfig | SpectralCodecConfig:
    """Read the configuration of a folder's codec; without an architecture it is EnCodec."""
    path = folder / "codec.json"
    if read_config(path, _Architecture).architecture == "spectral":
        return read_config(path, SpectralCodecConfig)
    return read_config(path, CodecConfig)


def save_lm(folder: Path, config: ModelConfig, tensors: Mapping[str, Tensor]) -> None:
    """Write a language model as `load_lm` reads it, replacing an existing one."""
    folder.mkdir(parents=True, exist_ok=True)
    for old in lm_files(folder):
        old.unlink()
    part: dict[str, Tensor] = {}
    number = 1
    size = 0
    for name, tensor in tensors.items():
        if part and size + 2 * tensor.numel() > FILE_BYTES:
            write_tensors(folder / f"lm-{number}.safetensors", part)
            part = {}
            number += 1
            size = 0
        part[name] = tensor
        size += 2 * tensor.numel()
    write_tensors(folder / f"lm-{number}.safetensors", part)
    write_sums(lm_files(folder))
    _write_card(folder, config)


def save_null_head(folder: Path, spec: NullHeadConfig, tensors: Mapping[str, Tensor]) -> None:
    """Add a null head of the model of a folder, in place of one that it has; the rest stays."""
    config = read_config(folder / "lm.json", ModelConfig)
    named = {f"null_head.{name}": tensor for name, tensor in tensors.items()}
    write_tensors(folder / NULL_HEAD, named)
    write_sums([folder / NULL_HEAD])
    _write_card(folder, config.model_copy(update={"null_head": spec}))


def _write_card(folder: Path, config: ModelConfig) -> None:
    (folder / "lm.json").write_text(config.model_dump_json(indent=1) + "\n")


def save_codec(folder: Path, codec: Codec) -> None:
    """Write a codec as `load_codec` reads it, replacing an existing one."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "codec.safetensors"
    write_tensors(file, codec.state_dict())
    write_sums([file])
    (folder / "codec.json").write_text(codec.config.model_dump_json(indent=1) + "\n")


def codec_files(folder: Path) -> list[Path]:
    """Return the weights of a folder's codec."""
    prior = folder / PRIOR
    return [folder / "codec.safetensors", *([prior] if prior.exists() else [])]


def lm_files(folder: Path) -> list[Path]:
    """Return the weights of a folder's language model, in order."""
    return sorted(folder.glob("lm-*.safetensors"))


def read_config(path: Path, kind: type[_Config]) -> _Config:
    """Read a configuration file; raises CheckpointError if it is missing or invalid."""
    try:
        return kind.model_validate_json(path.read_bytes(), strict=True)
    except OSError as error:
        raise CheckpointError(f"{path}: {error.strerror}") from error
    except ValidationError as error:
        raise CheckpointError(f"{path}: {first_problem(error)}") from error

"""The built-in layout: a folder with configurations in JSON and weights in safetensors.

codec.json  codec.safetensors     the codec
prior.safetensors                 what clean speech looks like to it, if it restores recordings
lm.json     lm-*.safetensors      the language model, in parts small enough for a git host
SHA256SUMS                        hashes of the weights, see `models.checkpoints.files`
voices/                           voices, see `models.voices.voice`
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeVar

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
from models.codecs.vocos import Vocos
from models.config import CodecConfig, ModelConfig, SpectralCodecConfig, first_problem
from models.valle import Valle

FILE_BYTES = 14 * 2**20
PRIOR = "prior.safetensors"

DecoderName = Literal["codec", "vocos"]
"""Which module decodes codes to samples: the codec itself, or Vocos in its place."""

_Config = TypeVar("_Config", bound=BaseModel)


class _Architecture(BaseModel):
    architecture: str = "encodec"


@dataclass(frozen=True)
class SpeechModel:
    """A loaded model with its codec: phonemes to samples."""

    name: str  # the model's name in requests
    sha256: str  # hash of all weights; part of responses, so that they can be reproduced
    folder: Path  # folder with `voices/`
    model: Valle
    codec: Codec  # encodes voices, and decodes unless there is `vocos`
    vocos: Vocos | None = None  # decodes in place of the codec, or None

    @property
    def decoder(self) -> Codec | Vocos:
        """The module that decodes codes to samples."""
        return self.vocos or self.codec

    @property
    def decoder_name(self) -> DecoderName:
        """The name of `decoder`."""
        return "vocos" if self.vocos else "codec"


def load_speech_model(source: str | Path, device: torch.device) -> SpeechModel:
    """Load the model and its codec from a folder, ready for inference.

    Raises CheckpointError if a file is missing or damaged, or model and codec do not fit.
    """
    folder = Path(source)
    if not folder.is_dir():
        raise CheckpointError(f"{folder} is no folder")
    model, codec = _read_lm(folder), _read_codec(folder)
    if (model.config.levels, model.config.codes) != (codec.config.levels, codec.config.codes):
        raise CheckpointError(
            f"{folder}: the model speaks {model.config.levels} levels of {model.config.codes}"
            f" codes, the codec {codec.config.levels} of {codec.config.codes}"
        )
    digest = check_sums([*_lm_files(folder), *_codec_files(folder)])
    return SpeechModel(model.config.name, digest, folder, model.to(device), codec.to(device))


def load_lm(folder: Path) -> Valle:
    """Load the language model of a folder in float32."""
    model = _read_lm(folder)
    check_sums(_lm_files(folder))
    return model


def _read_lm(folder: Path) -> Valle:
    """Load the language model of a folder without a look at its hashes."""
    model = Valle(read_config(folder / "lm.json", ModelConfig))
    files = _lm_files(folder)
    if not files:
        raise CheckpointError(f"{folder} holds no lm-*.safetensors")
    fill(model, read_tensors(files), str(folder)).lay_out_for_steps()
    return model


def load_codec(folder: Path) -> Codec:
    """Load the codec of a folder in float32."""
    codec = _read_codec(folder)
    check_sums(_codec_files(folder))
    return codec


def _read_codec(folder: Path) -> Codec:
    """Load the codec of a folder without a look at its hash."""
    config = read_codec_config(folder)
    file = folder / "codec.safetensors"
    codec = SpectralCodec(config) if isinstance(config, SpectralCodecConfig) else Encodec(config)
    fill(codec, read_tensors([file]), str(file))
    if isinstance(codec, SpectralCodec) and (folder / PRIOR).exists():
        codec.prior = _read_prior(folder / PRIOR, codec.config.bands)
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
    for old in _lm_files(folder):
        old.unlink()
    part: dict[str, Tensor] = {}
    number, size = 1, 0
    for name, tensor in tensors.items():
        if part and size + 2 * tensor.numel() > FILE_BYTES:
            write_tensors(folder / f"lm-{number}.safetensors", part)
            part, number, size = {}, number + 1, 0
        part[name] = tensor
        size += 2 * tensor.numel()
    write_tensors(folder / f"lm-{number}.safetensors", part)
    write_sums(_lm_files(folder))
    (folder / "lm.json").write_text(config.model_dump_json(indent=1) + "\n")


def save_codec(folder: Path, codec: Codec) -> None:
    """Write a codec as `load_codec` reads it, replacing an existing one."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "codec.safetensors"
    write_tensors(file, codec.state_dict())
    write_sums([file])
    (folder / "codec.json").write_text(codec.config.model_dump_json(indent=1) + "\n")


def _codec_files(folder: Path) -> list[Path]:
    prior = folder / PRIOR
    return [folder / "codec.safetensors", *([prior] if prior.exists() else [])]


def _lm_files(folder: Path) -> list[Path]:
    return sorted(folder.glob("lm-*.safetensors"))


def read_config(path: Path, kind: type[_Config]) -> _Config:
    """Read a configuration file; raises CheckpointError if it is missing or invalid."""
    try:
        return kind.model_validate_json(path.read_bytes(), strict=True)
    except OSError as error:
        raise CheckpointError(f"{path}: {error.strerror}") from error
    except ValidationError as error:
        raise CheckpointError(f"{path}: {first_problem(error)}") from error

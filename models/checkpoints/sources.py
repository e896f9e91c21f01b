"""Loading of whatever `TTS_MODEL` names: a folder, a published file, or a model of the hub."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch

from models.checkpoints.builtin import codec_files, lm_files, load_codec, load_lm
from models.checkpoints.encodec import load_official, official_file
from models.checkpoints.files import CheckpointError, names_of, sha256_of
from models.checkpoints.hub import MODEL_CACHE, locate
from models.checkpoints.published.load import SUFFIXES, find_file, load_public
from models.checkpoints.vallex.layout import is_this_family
from models.checkpoints.vallex.load import SYMBOL_FILE, load_vallex
from models.checkpoints.vallex.pickles import PICKLE_SUFFIXES, converted
from models.checkpoints.vocos import load_vocos, vocos_file
from models.codecs.interface import Codec
from models.codecs.vocos import Vocos
from models.valle import Valle

VOICES = Path(__file__).resolve().parents[2] / "weights"
"""Folder whose voices serve models without voices of their own."""


DecoderName = Literal["codec", "vocos"]
"""Which module decodes codes to samples: the codec itself, or Vocos in its place."""


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


def open_speech_model(
    name: str | Path,
    device: torch.device,
    *,
    cache: Path = Path(MODEL_CACHE),
    offline: bool = False,
    decoder: DecoderName = "codec",
) -> SpeechModel:
    """Load a model with its codec, downloading what is missing to ``cache``.

    The name is a folder, a published file, or as `models.checkpoints.hub.find` reads it. A model
    without its own codec gets the official EnCodec, which published checkpoints were trained with.
    Raises CheckpointError if the model is of no known layout, or does not fit the codec.
    """
    path = locate(str(name), cache=cache, offline=offline)
    brings_codec = (path / "codec.json").is_file()
    if brings_codec and decoder == "vocos":
        raise CheckpointError(
            f"{path} brings a codec of its own; Vocos decodes the codes of EnCodec alone"
        )
    if brings_codec or (path / "lm.json").is_file():
        model = load_lm(path)
        files = lm_files(path)
    elif path.is_file() or (path.is_dir() and any(map(is_published, path.iterdir()))):
        model, file = load_published(path, cache)
        files = [file]
    else:
        raise CheckpointError(f"{path} is neither a model's folder nor a published file")
    if brings_codec:
        codec = load_codec(path)
        files += codec_files(path)
    else:
        if not model.config.phoneme_vocabulary:
            beside = "tokenizer.json of the repository"
            if model.config.prompt == "response":
                beside = f"symbol table that it was trained with, {SYMBOL_FILE}, "
            raise CheckpointError(
                f"{path}: it has no vocabulary of phonemes; put the {beside} beside it"
            )
        files.append(official_file(cache, offline=offline))
        codec = load_official(files[-1])
    if (model.config.levels, model.config.codes) != (codec.config.levels, codec.config.codes):
        raise CheckpointError(
            f"{path}: the model speaks {model.config.levels} levels of {model.config.codes} codes,"
            f" the codec {codec.config.levels} of {codec.config.codes}"
        )
    vocos = None
    if decoder == "vocos":
        files.append(vocos_file(cache, offline=offline))
        vocos = load_vocos(files[-1]).to(device)
    return SpeechModel(
        name=model.config.name,
        sha256=sha256_of(files),
        folder=path if (path / "voices").is_dir() else VOICES,
        model=model.to(device),
        codec=codec.to(device),
        vocos=vocos,
    )


def load_published(path: Path, cache: Path) -> tuple[Valle, Path]:
    """Load a published language model of any family; return it with the file of its weights."""
    pickles = [one for one in (path.iterdir() if path.is_dir() else [path]) if _is_pickle(one)]
    file = converted(pickles[0], cache) if len(pickles) == 1 else find_file(path)
    if is_this_family(names_of(file)):
        return load_vallex(file), file
    return load_public(file), file


def is_published(file: Path) -> bool:
    """Return whether a file may be a published checkpoint, by its name."""
    named = file.suffix in SUFFIXES and not file.name.startswith("lm-")
    return named or _is_pickle(file)


def _is_pickle(file: Path) -> bool:
    return file.suffix in PICKLE_SUFFIXES and file.is_file()

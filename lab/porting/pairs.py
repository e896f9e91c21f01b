"""Reading of pairs of codes and phonemes, which `eras` measures a published model with.

Either a ``.enc`` file of e-c-k-e-r/vall-e: NumPy's format around a pickled dict of codes and
metadata, of which only arrays and plain values are unpickled. Or JSON:
``{"phonemes": "...", "codes": [[...], ...], "language": "en", "prompt": [[...], ...]}``, codes by
frame, the last two optional.
"""

import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO, cast

import numpy as np
import torch
from numpy.lib import format as npy
from torch import Tensor

from lab.porting.eras import Pair
from models.checkpoints.files import CheckpointError
from models.config import ModelConfig

Encode = Callable[[str], list[int]]
"""Phonemes to ids, including BOS and EOS."""

_ALLOWED = {
    ("numpy", "ndarray"),
    ("numpy", "dtype"),
    *((f"numpy.{core}.multiarray", "_reconstruct") for core in ("core", "_core")),
    *((f"numpy.{core}.multiarray", "scalar") for core in ("core", "_core")),
}


class _ArrayUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _ALLOWED:
            raise pickle.UnpicklingError(f"{module}.{name} is not allowed")
        return super().find_class(module.replace("numpy.core", "numpy._core"), name)


def read_pair(path: Path, config: ModelConfig, encode: Encode) -> Pair:
    """Read a pair from a ``.enc`` or ``.json`` file, for a model with its tokenizer.

    Raises CheckpointError if it is damaged, lacks phonemes, or its codes do not fit the model.
    """
    try:
        found = _read_enc(path) if path.suffix == ".enc" else json.loads(path.read_bytes())
        codes, prompt = found["codes"], found.get("prompt")
        phoneme_ids = encode("".join([found["phonemes"]]))  # raises TypeError unless it is text
        language = found.get("language") or config.languages[0]
    except (OSError, ValueError, KeyError, TypeError, AttributeError, EOFError) as error:
        raise CheckpointError(f"{path} holds no codes with phonemes: {error!r}") from error
    except pickle.UnpicklingError as error:
        raise CheckpointError(f"{path} is no .enc file: {error}") from error
    if language not in config.languages:
        raise CheckpointError(f"{path}: the model does not speak {language!r}")
    return Pair(
        phoneme_ids,
        _codes(codes, config, path),
        config.languages.index(language),
        None if prompt is None else _codes(prompt, config, path),
    )


def _read_enc(path: Path) -> dict[str, Any]:
    """Return codes ``[T, K]``, phonemes and language of a ``.enc`` file."""
    with path.open("rb") as file:
        _skip_header(file)
        stored = _ArrayUnpickler(file).load()
    if isinstance(stored, np.ndarray) and stored.shape == ():
        stored = stored.item()
    metadata = stored["metadata"]
    codes = np.asarray(stored["codes"])
    return {
        "phonemes": metadata["phonemes"],
        "language": metadata.get("language"),
        "codes": codes.reshape(codes.shape[-2:]).T.tolist(),
    }


def _skip_header(file: BinaryIO) -> None:
    version = npy.read_magic(file)
    if version != (1, 0):
        raise ValueError(f"NumPy format {version}")
    npy.read_array_header_1_0(file)


def _codes(rows: object, config: ModelConfig, path: Path) -> Tensor:
    """Return codes as a tensor ``[T, K]`` int64."""
    try:
        codes = torch.tensor(cast("list[list[int]]", rows), dtype=torch.int64)
    except (TypeError, ValueError, RuntimeError, OverflowError) as error:
        raise CheckpointError(f"{path}: codes are no table of numbers") from error
    if codes.ndim != 2 or codes.shape[1] != config.levels or not len(codes):
        raise CheckpointError(
            f"{path}: codes have shape {list(codes.shape)}, expected [T, {config.levels}]"
        )
    if codes.min() < 0 or codes.max() >= config.codes:
        raise CheckpointError(f"{path}: codes must be from 0 to {config.codes - 1}")
    return codes

"""The pickles in which this family is published, converted to safetensors once.

A pickle is opened with tensors alone and an allow-list: paths, which trainers keep among their
settings. It is never run as code. What is converted is known by the pickle's SHA-256, and has
hashes of its own beside it.
"""

import json
import logging
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any, Final

from torch import Tensor

from models.checkpoints.files import (
    CheckpointError,
    check_sums,
    sha256_of,
    unpickled,
    write_sums,
    write_tensors,
)
from models.checkpoints.vallex.layout import is_this_family
from models.checkpoints.vallex.load import SETTINGS, SYMBOL_FILE, TrainerSettings

log = logging.getLogger(__name__)

PICKLE_SUFFIXES: Final = {".pt", ".pth"}

_ALLOWED: Final = [
    (PurePosixPath, f"{module}.{name}")
    for module in ("pathlib", "pathlib._local")
    for name in ("PosixPath", "WindowsPath", "PurePosixPath", "PureWindowsPath")
]


def converted(pickle: Path, cache: Path) -> Path:
    """Return the safetensors file of a pickle of this family, made when it is first asked for.

    Raises CheckpointError if the pickle holds anything but a state dict and plain settings, or the
    file was changed since it was made.
    """
    from filelock import FileLock

    digest = sha256_of([pickle])
    folder = cache.expanduser() / "vallex" / digest[:16]
    file = folder / "model.safetensors"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with FileLock(folder / "lock"):
            if not file.is_file():
                _convert(pickle, file)
                log.info("%s (SHA-256 %s) is converted to %s", pickle, digest, file)
            check_sums([file])
            for name in (SYMBOL_FILE, "settings.json"):
                beside = pickle.with_name(name)
                if beside.is_file():
                    (folder / name).write_bytes(beside.read_bytes())
    except OSError as error:
        raise CheckpointError(f"{file} cannot be written: {error}") from error
    return file


def _convert(pickle: Path, file: Path) -> None:
    held = unpickled(pickle, _ALLOWED)
    tensors = held.get("model", held) if isinstance(held, Mapping) else None
    if not isinstance(tensors, Mapping) or not all(
        isinstance(name, str) and isinstance(value, Tensor) for name, value in tensors.items()
    ):
        raise CheckpointError(f"{pickle}: there is no mapping of names to tensors under `model`")
    if not is_this_family(tensors):
        raise CheckpointError(
            f"{pickle}: tensors of no known layout: {', '.join(sorted(tensors)[:3])}"
        )
    # Tied tensors are in it under both names, of one storage.
    own = {name: tensor.clone() for name, tensor in tensors.items()}
    metadata = {SETTINGS: json.dumps(_settings(held))}
    write_tensors(file, own, dtype=None, metadata=metadata)
    write_sums([file])


def _settings(held: Mapping[str, Any]) -> dict[str, int]:
    """Return the settings of a trainer that matter here."""
    known = TrainerSettings.model_fields
    return {name: held[name] for name in known if isinstance(held.get(name), int)}

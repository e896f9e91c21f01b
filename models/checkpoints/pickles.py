"""Conversion of published pickles to safetensors; only tensors are unpickled."""

from collections.abc import Callable, Mapping
from pathlib import Path
from pickle import UnpicklingError

import torch
from torch import Tensor, nn

from models.checkpoints.files import CheckpointError, write_tensors


def convert_once(
    pickle: Path, converted: Path, make: Callable[[Mapping[str, Tensor]], nn.Module]
) -> None:
    """Write a verified pickle's weights as safetensors, once; safe across processes.

    Raises:
        CheckpointError: The pickle has unexpected contents, or writing fails.
    """
    from filelock import FileLock
    from safetensors import SafetensorError

    try:
        converted.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(converted.with_name(f"{converted.name}.lock")):
            if not converted.is_file():
                write_tensors(converted, make(_unpickle(pickle)).state_dict(), dtype=None)
    except (OSError, SafetensorError) as error:
        raise CheckpointError(f"{converted} cannot be written: {error}") from error


def _unpickle(path: Path) -> dict[str, Tensor]:
    """Return the tensors of a pickle by name."""
    try:
        tensors = torch.load(path, map_location="cpu", weights_only=True)
    except (UnpicklingError, RuntimeError, EOFError, ValueError) as error:
        first = str(error).partition("\n")[0]
        raise CheckpointError(f"{path} is no pickle of tensors: {first}") from error
    if not isinstance(tensors, dict) or not all(
        isinstance(name, str) and isinstance(value, Tensor) for name, value in tensors.items()
    ):
        raise CheckpointError(f"{path} is no mapping of names to tensors")
    return tensors

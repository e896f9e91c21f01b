"""Weights that are published as pickles: read as tensors and nothing else, kept as safetensors."""

from collections.abc import Callable, Mapping
from pathlib import Path
from pickle import UnpicklingError

import torch
from filelock import FileLock
from safetensors import SafetensorError
from torch import Tensor, nn

from models.checkpoints.files import CheckpointError, write_tensors


def convert_once(
    pickle: Path, converted: Path, make: Callable[[Mapping[str, Tensor]], nn.Module]
) -> None:
    """Write a pickle's weights as safetensors, unless that is done already.

    Args:
        pickle: What was downloaded and checked.
        converted: Where the safetensors shall lie; its folder is made.
        make: Makes our module of the pickle's tensors.

    Raises:
        CheckpointError: The pickle is not what it should be, or there is no room.
    """
    try:
        converted.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(converted.with_name(f"{converted.name}.lock")):
            if not converted.is_file():
                write_tensors(converted, make(_unpickled(pickle)).state_dict(), dtype=None)
    except (OSError, SafetensorError) as error:
        raise CheckpointError(f"{converted} cannot be written: {error}") from error


def _unpickled(path: Path) -> dict[str, Tensor]:
    """Read a pickle that may hold tensors and nothing else.

    Raises:
        CheckpointError: It holds something else.
    """
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

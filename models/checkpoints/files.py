"""Strict reading and writing of safetensors: every mismatch is an error that names the tensor."""

import hashlib
import os
import stat
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypeVar

import torch
from torch import Tensor, nn

_Module = TypeVar("_Module", bound=nn.Module)

_DTYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "I64": torch.int64,
    "I32": torch.int32,
    "U8": torch.uint8,
}


class CheckpointError(ValueError):
    """Weights or their description are missing, damaged or unexpected; the message says which."""


def read_tensors(paths: Sequence[Path]) -> dict[str, Tensor]:
    """Return the tensors of several safetensors files as one mapping, in their stored dtype.

    Raises:
        CheckpointError: A file is missing, truncated or no safetensors, or a name occurs twice.
    """
    from safetensors import SafetensorError, safe_open

    tensors: dict[str, Tensor] = {}
    for path in paths:
        _check_readable(path)
        try:
            with safe_open(path, framework="pt") as file:
                for name in file.keys():  # noqa: SIM118 - not a mapping
                    if name in tensors:
                        raise CheckpointError(f"{path}: tensor {name} is in another file too")
                    tensors[name] = file.get_tensor(name)
        except (SafetensorError, OSError) as error:
            raise CheckpointError(f"{path} is damaged or no safetensors file: {error}") from error
    return tensors


def read_header(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Return the tensors of a safetensors file, on the device "meta", and its metadata.

    Raises:
        CheckpointError: The file is missing, truncated or no safetensors, or of unknown dtypes.
    """
    from safetensors import SafetensorError, safe_open

    _check_readable(path)
    tensors: dict[str, Tensor] = {}
    try:
        with safe_open(path, framework="pt") as file:
            for name in file.keys():  # noqa: SIM118 - not a mapping
                part = file.get_slice(name)
                dtype = _DTYPES.get(part.get_dtype())
                if dtype is None:
                    raise CheckpointError(f"{path}: tensor {name} is {part.get_dtype()}")
                tensors[name] = torch.empty(part.get_shape(), dtype=dtype, device="meta")
            return tensors, dict(file.metadata() or {})
    except (SafetensorError, OSError) as error:
        raise CheckpointError(f"{path} is damaged or no safetensors file: {error}") from error


def _check_readable(path: Path) -> None:
    """Refuse missing and unreadable files, which safetensors would report as damaged."""
    if not path.is_file():
        raise CheckpointError(f"{path} does not exist")
    if not os.access(path, os.R_OK):
        mode = stat.filemode(path.stat().st_mode)
        raise CheckpointError(f"{path} ({mode}) is not readable by uid {os.geteuid()}")


def fill(module: _Module, tensors: Mapping[str, Tensor], source: str) -> _Module:
    """Copy tensors into a module whose names match exactly; return it in eval mode.

    Raises:
        CheckpointError: A tensor is missing, unknown, of another shape, or not finite.
    """
    wanted = module.state_dict()
    missing, unknown = (
        sorted(wanted.keys() - tensors.keys()),
        sorted(tensors.keys() - wanted.keys()),
    )
    if missing:
        raise CheckpointError(f"{source}: tensor {missing[0]} is missing ({len(missing)} in all)")
    if unknown:
        raise CheckpointError(f"{source}: tensor {unknown[0]} is unknown ({len(unknown)} in all)")
    for name, target in wanted.items():
        found = tensors[name]
        if found.shape != target.shape:
            raise CheckpointError(
                f"{source}: tensor {name} has shape {list(found.shape)},"
                f" expected {list(target.shape)}"
            )
        if not torch.isfinite(found).all():
            raise CheckpointError(f"{source}: tensor {name} holds NaN or infinity")
        target.copy_(found)
    return module.eval().requires_grad_(False)


def write_tensors(
    path: Path, tensors: Mapping[str, Tensor], dtype: torch.dtype | None = torch.float16
) -> None:
    """Write tensors to a file atomically, in one dtype or, if None, each in its own."""
    from safetensors.torch import save_file

    partial = path.with_suffix(".partial")
    stored = {name: value.to(dtype or value.dtype).contiguous() for name, value in tensors.items()}
    try:
        save_file(stored, partial)
        partial.chmod(0o644)  # safetensors leaves it to the owner alone
        partial.rename(path)
    finally:
        partial.unlink(missing_ok=True)


def sha256_of(paths: Sequence[Path]) -> str:
    """Return the hexadecimal SHA-256 of the concatenated contents of files."""
    digest = hashlib.sha256()
    for path in paths:
        with path.open("rb") as file:
            while block := file.read(1 << 20):
                digest.update(block)
    return digest.hexdigest()

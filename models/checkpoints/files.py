"""Files of weights: safetensors, checksums, and the conversion of published pickles.

Every mismatch is an error that names the tensor. Checksums of a folder's weights are beside them in
the format of `sha256sum`: corruption that leaves valid numbers would go unnoticed.
"""

import os
import re
import stat
from collections.abc import Callable, Collection, Mapping, Sequence
from hashlib import file_digest, sha256
from pathlib import Path
from pickle import UnpicklingError
from types import MappingProxyType
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

SUMS = "SHA256SUMS"

_LINE = re.compile(r"(?P<digest>[0-9a-f]{64}) [ *](?P<name>[^/\n]+)")

_Module = TypeVar("_Module", bound=nn.Module)


class CheckpointError(ValueError):
    """Weights or their description are missing, damaged or unexpected; the message says which."""


def read_file(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Return the tensors of a safetensors file, in their stored dtype, and its metadata.

    Tensors are mapped from the file: what they hold is not read before it is needed. Raises
    CheckpointError if the file is missing, truncated or no safetensors.
    """
    from safetensors import SafetensorError, safe_open

    _check_readable(path)
    try:
        with safe_open(path, framework="pt") as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            return tensors, dict(file.metadata() or {})
    except (SafetensorError, OSError) as error:
        raise CheckpointError(f"{path} is damaged or no safetensors file: {error}") from error


def names_of(path: Path) -> Mapping[str, None]:
    """Return the names of the tensors of a safetensors file; raises as `read_file` does."""
    from safetensors import SafetensorError, safe_open

    _check_readable(path)
    try:
        with safe_open(path, framework="pt") as file:
            return dict.fromkeys(file.keys())
    except (SafetensorError, OSError) as error:
        raise CheckpointError(f"{path} is damaged or no safetensors file: {error}") from error


def read_tensors(paths: Sequence[Path]) -> dict[str, Tensor]:
    """Return the tensors of several files of `read_file` as one mapping.

    Raises CheckpointError if a name occurs twice.
    """
    tensors: dict[str, Tensor] = {}
    for path in paths:
        found, _ = read_file(path)
        if twice := sorted(tensors.keys() & found.keys()):
            raise CheckpointError(f"{path}: tensor {twice[0]} is in another file too")
        tensors |= found
    return tensors


def _check_readable(path: Path) -> None:
    """Refuse missing and unreadable files, which safetensors would report as damaged."""
    if not path.is_file():
        raise CheckpointError(f"{path} does not exist")
    if not os.access(path, os.R_OK):
        mode = stat.filemode(path.stat().st_mode)
        raise CheckpointError(f"{path} ({mode}) is not readable by uid {os.geteuid()}")


def matrix_shape(tensors: Mapping[str, Tensor], name: str, source: str) -> tuple[int, int]:
    """Return the shape of a matrix; raises CheckpointError if it is missing or none."""
    if name not in tensors:
        raise CheckpointError(f"{source}: tensor {name} is missing")
    shape = tuple(tensors[name].shape)
    if len(shape) != 2 or not all(shape):
        raise CheckpointError(f"{source}: tensor {name} has shape {list(shape)}, expected a matrix")
    return shape


def check_tensors(
    tensors: Mapping[str, Tensor],
    wanted: Mapping[str, Sequence[int]],
    source: str,
    *,
    optional: Mapping[str, Sequence[int]] = MappingProxyType({}),
    ignored: Collection[str] = (),
) -> None:
    """Raise CheckpointError if a tensor is missing, unknown or of another shape."""
    known = {**wanted, **optional}
    missing = sorted(wanted.keys() - tensors.keys())
    unknown = sorted(tensors.keys() - known.keys() - {*ignored})
    for names, what in ((missing, "missing"), (unknown, "unknown")):
        if names:
            raise CheckpointError(f"{source}: tensor {names[0]} is {what} ({len(names)} in all)")
    for name in sorted(tensors.keys() & known.keys()):
        found = list(tensors[name].shape)
        expected = list(known[name])
        if found != expected:
            raise CheckpointError(f"{source}: tensor {name} has shape {found}, expected {expected}")


def check_numbers(tensors: Mapping[str, Tensor], source: str) -> None:
    """Raise CheckpointError if a tensor holds NaN or infinity."""
    seen: set[int] = set()
    for name, tensor in tensors.items():
        if id(tensor) in seen:  # one that several stacks share
            continue
        seen.add(id(tensor))
        if not torch.isfinite(tensor).all():
            raise CheckpointError(f"{source}: tensor {name} holds NaN or infinity")


def fill(module: _Module, tensors: Mapping[str, Tensor], source: str) -> _Module:
    """Copy tensors into a module whose names match exactly; return it in eval mode.

    What does not fit is refused: see `check_tensors` and `check_numbers`.
    """
    wanted = module.state_dict()
    check_tensors(tensors, {name: tensor.shape for name, tensor in wanted.items()}, source)
    check_numbers(tensors, source)
    filled: set[int] = set()
    for name, target in wanted.items():
        if target.data_ptr() not in filled or not target.numel():
            target.copy_(tensors[name])
            filled.add(target.data_ptr())
    return module.eval().requires_grad_(False)


def write_tensors(
    path: Path,
    tensors: Mapping[str, Tensor],
    dtype: torch.dtype | None = torch.float16,
    metadata: Mapping[str, str] | None = None,
) -> None:
    """Write tensors to a file atomically, in one dtype or, if None, each in its own."""
    from safetensors.torch import save_file

    partial = path.with_suffix(".partial")
    stored = {name: value.to(dtype or value.dtype).contiguous() for name, value in tensors.items()}
    try:
        save_file(stored, partial, None if metadata is None else dict(metadata))
        partial.chmod(0o644)  # safetensors leaves it to the owner alone
        partial.rename(path)
    finally:
        partial.unlink(missing_ok=True)


def sha256_of(paths: Sequence[Path]) -> str:
    """Return the hexadecimal SHA-256 of the concatenated contents of files."""
    digest = sha256()
    for path in paths:
        with path.open("rb") as file:
            file_digest(file, lambda: digest)
    return digest.hexdigest()


def write_sums(files: Sequence[Path]) -> None:
    """Add the hashes of files of one folder to its checksums; drop entries of deleted files."""
    folder = files[0].parent
    kept = {name: digest for name, digest in _listed(folder).items() if (folder / name).exists()}
    sums = kept | {file.name: sha256_of([file]) for file in files}
    lines = [f"{digest}  {name}\n" for name, digest in sorted(sums.items())]
    partial = folder / f"{SUMS}.partial"
    partial.write_text("".join(lines))
    partial.rename(folder / SUMS)


def check_sums(files: Sequence[Path]) -> None:
    """Compare files of a folder with its checksums, if it has any.

    Raises CheckpointError if a file differs or is not listed.
    """
    folder = files[0].parent
    if not (folder / SUMS).exists():
        return
    stored = _listed(folder)
    for file in files:
        if file.name not in stored:
            raise CheckpointError(f"{file} is not in {SUMS}: it does not belong to the others")
        if sha256_of([file]) != stored[file.name]:
            raise CheckpointError(
                f"{file} is damaged, or not the file that was saved: its hash is not that of {SUMS}"
            )


def _listed(folder: Path) -> Mapping[str, str]:
    """Return the listed hash of each file name; empty if there is no list."""
    path = folder / SUMS
    if not path.exists():
        return {}
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise CheckpointError(f"{path} cannot be read: {error}") from error
    matches = [_LINE.fullmatch(line) for line in lines]
    if None in matches:
        raise CheckpointError(f"{path}: line {matches.index(None) + 1} is no hash and name")
    return {match["name"]: match["digest"] for match in matches if match is not None}


def convert_once(
    pickle: Path, converted: Path, make: Callable[[Mapping[str, Tensor]], nn.Module]
) -> None:
    """Write a verified pickle's weights as safetensors, once; safe across processes.

    Raises CheckpointError if the pickle has unexpected contents, or writing fails.
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


def unpickled(path: Path, allowed: Sequence[Any] = ()) -> Any:
    """Return what a pickle holds: tensors, numbers, text and containers of them.

    No code of it runs. ``allowed`` are further classes, as `torch.serialization.safe_globals` takes
    them. Raises CheckpointError, which names the class, for any other.
    """
    try:
        with torch.serialization.safe_globals([*allowed]):
            return torch.load(path, map_location="cpu", weights_only=True)
    except UnpicklingError as error:
        asked = re.search(r"GLOBAL (\S+)", str(error))
        first = f"it asks for {asked[1]}" if asked else "it holds more than tensors"
        raise CheckpointError(f"{path} is no pickle of tensors: {first}") from error
    except (OSError, RuntimeError, EOFError, ValueError) as error:
        first = str(error).partition("\n")[0]
        raise CheckpointError(f"{path} is no pickle of tensors: {first}") from error


def _unpickle(path: Path) -> dict[str, Tensor]:
    """Return the tensors of a pickle by name."""
    tensors = unpickled(path)
    if not isinstance(tensors, dict) or not all(
        isinstance(name, str) and isinstance(value, Tensor) for name, value in tensors.items()
    ):
        raise CheckpointError(f"{path} is no mapping of names to tensors")
    return tensors

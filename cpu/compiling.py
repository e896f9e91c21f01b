"""Compilation of kernels with numba, and the cache of their machine code on disk."""

import logging
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from hashlib import sha256
from inspect import getfile
from pathlib import Path
from shutil import copytree
from tempfile import TemporaryDirectory, TemporaryFile
from typing import Any, Final, ParamSpec, TypeVar

import numba
from numba.core import config as numba_config

from cpu.kernel_cache import KernelCache

log = logging.getLogger(__name__)

CACHE: Final = "~/.cache/valle-serve/kernels"

BUILT: Final = Path(__file__).parents[1] / "kernels"
"""Machine code that an image was built with, where no volume hides it."""

_config: Any = numba_config  # its values are read from the environment, unseen by types
_P = ParamSpec("_P")
_R = TypeVar("_R")


def kernel(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Compile a function with numba on its first call; it then runs without the GIL.

    `fastmath` stays off: numba compiles a function once by itself and once more inside each kernel
    that calls it, and which copy runs depends on the order of loading. All copies, and the code of
    all processors, give the same bits only if every float operation is rounded as written. Machine
    code is cached on disk, see `cache_folder`.
    """
    compiled: Any = numba.njit(nogil=True, error_model="numpy")(function)
    folder = cache_folder(sources_of(function))
    configured = _config.CACHE_DIR
    if folder is not None:
        _config.CACHE_DIR = str(folder)
        try:
            compiled._cache = KernelCache(function)
        except Exception as error:  # the folder went since it was looked at
            log.warning("kernels cannot be kept in %s: %s", folder, error)
        finally:
            _config.CACHE_DIR = configured
    wrapped: Callable[_P, _R] = compiled
    return wrapped


def sources_of(function: Callable[..., object]) -> Path:
    """Return the folder of the sources of a function's machine code: that of its own file."""
    return Path(getfile(function)).parent


@cache
def cache_folder(sources: Path) -> Path | None:
    """Return the folder of machine code of some sources; None if it cannot be written to.

    It has the digest of all files below theirs, and of this package's: a function's code includes
    that of the functions that it calls and the constants that it names, and numba itself only
    checks the function's own file. So what is compiled takes nothing from other folders.
    """
    digest = sha256()
    for folder in (Path(__file__).parent, sources):
        for source in sorted(folder.rglob("*.py")):
            digest.update(source.read_bytes())
    with suppress(RuntimeError, OSError):  # there may be no home directory
        folder = Path(_config.CACHE_DIR or CACHE).expanduser() / digest.hexdigest()[:16]
        if not folder.exists() and (BUILT / folder.name).is_dir():
            _copy(BUILT / folder.name, folder)
        folder.mkdir(parents=True, exist_ok=True)
        with TemporaryFile(dir=folder):
            return folder
    return None


def _copy(built: Path, folder: Path) -> None:
    """Copy a folder, whole or, if another process is quicker, not at all."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=folder.parent) as made, suppress(OSError):
        copytree(built, Path(made, built.name)).rename(folder)

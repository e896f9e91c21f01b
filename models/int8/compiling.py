"""Compilation of kernels with numba, and the cache of their machine code on disk."""

from collections.abc import Callable
from contextlib import suppress
from functools import cache
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, Final, ParamSpec, TypeVar

import numba
from numba.core import config as numba_config

CACHE: Final = "~/.cache/valle-serve/kernels"

_config: Any = numba_config  # its values are read from the environment, unseen by types
_P = ParamSpec("_P")
_R = TypeVar("_R")


def kernel(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Compile a function with numba on its first call; it then runs without the GIL.

    `fastmath` stays off: numba compiles a function once by itself and once more inside each kernel
    that calls it, and which copy runs depends on the order of loading. All copies, and the code of
    all processors, give the same bits only if every float operation is rounded as written. Fast
    sums of floats are in `models.int8.row_sum`.

    Machine code is cached on disk, if a folder can be written, under the digest of all files of
    this package: a function's code includes that of the functions it calls, and numba itself only
    checks the function's own file.
    """
    compiled = numba.njit(nogil=True, error_model="numpy")(function)
    configured = _config.CACHE_DIR
    try:
        with suppress(RuntimeError, OSError):  # no folder is writable: compile at every start
            _config.CACHE_DIR = str(_cache_folder())
            compiled.enable_caching()
    finally:
        _config.CACHE_DIR = configured
    return compiled


@cache
def _cache_folder() -> Path:
    """Return the folder of machine code for these sources, creating it.

    Raises:
        OSError: It cannot be written to; numba would fall back to another place.
        RuntimeError: There is no home directory.
    """
    digest = sha256()
    for source in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(source.read_bytes())
    folder = Path(_config.CACHE_DIR or CACHE).expanduser() / digest.hexdigest()[:16]
    folder.mkdir(parents=True, exist_ok=True)
    with TemporaryFile(dir=folder):
        return folder

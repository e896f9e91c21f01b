"""How loops over numbers are compiled, and where their machine code is kept."""

from collections.abc import Callable
from contextlib import suppress
from functools import cache
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, Final, ParamSpec, TypeVar

import numba
from numba.core import config as numba_config

KEPT: Final = "~/.cache/valle-serve/kernels"

_config: Any = numba_config  # its values are read from the environment, unseen by types
_P = ParamSpec("_P")
_R = TypeVar("_R")


def kernel(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Compile when first called; the code lets go of the interpreter's lock.

    No liberty is given to the compiler (`fastmath`): a function is compiled once by itself and once
    more inside each kernel that calls it, and which copy runs depends on which was loaded first.
    Only where every float operation is rounded as it is written do all copies, and the code of all
    processors, give the same bits. Sums that should be quick go through `models.int8.sums`.

    It is kept on disk, where there is a place for it, for as long as no file of this folder
    changes: one function's code has that of others in it, and numba looks at its own file alone.
    """
    compiled = numba.njit(nogil=True, error_model="numpy")(function)
    chosen = _config.CACHE_DIR
    try:
        with suppress(RuntimeError, OSError):  # no folder may be written to
            _config.CACHE_DIR = str(_folder())
            compiled.enable_caching()
    finally:
        _config.CACHE_DIR = chosen
    return compiled


@cache
def _folder() -> Path:
    """Return where code of these sources is kept.

    Raises:
        OSError: Nothing can be written there; numba would look for another place.
        RuntimeError: There is no home to look in.
    """
    digest = sha256()
    for source in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(source.read_bytes())
    folder = Path(_config.CACHE_DIR or KEPT).expanduser() / digest.hexdigest()[:16]
    folder.mkdir(parents=True, exist_ok=True)
    with TemporaryFile(dir=folder):
        return folder

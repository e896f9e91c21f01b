"""A log line and a counter of numba compilations, which make a first start slow."""

import logging
from functools import cache
from typing import Any

from numba.core import event

from cpu.compiling import CACHE, cache_folder, sources_of

_event: Any = event  # numba has no types
log = logging.getLogger(__name__)


class _Compilations(event.Listener):
    """Counts compiled functions and logs the first; functions read from disk do not count."""

    def __init__(self) -> None:
        self.count = 0

    def on_start(self, event: Any) -> None:
        if not self.count:
            function = event.data["dispatcher"].py_func
            folder = cache_folder(sources_of(function))
            if folder is None:
                log.warning(
                    "compiling kernels for this processor, as every start will: they cannot be kept"
                    " in %s",
                    CACHE,
                )
            else:
                log.info(
                    "compiling kernels for this processor; later starts read them from %s", folder
                )
        self.count += 1

    def on_end(self, _: Any) -> None:
        """Do nothing; required by the interface."""


@cache
def _compilations() -> _Compilations:
    listener = _Compilations()
    _event.register("numba:compile", listener)
    return listener


def watch() -> None:
    """Start counting and logging; idempotent, for the whole process."""
    _compilations()


def compilations() -> int:
    """Return how many functions were compiled, not read from disk, since `watch`."""
    return _compilations().count

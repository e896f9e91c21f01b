"""Who waits for a first start is told why: numba says when it compiles what no start has kept."""

import logging
from functools import cache
from typing import Any

from numba.core import event

_event: Any = event  # numba has no types
log = logging.getLogger(__name__)


class _Compilations(event.Listener):
    """Counts what is compiled, and says so once; what is read from disk is none of it."""

    def __init__(self) -> None:
        self.begun = 0

    def on_start(self, _: Any) -> None:
        if not self.begun:
            log.info("compiling for this processor; what comes of it is kept for later starts")
        self.begun += 1

    def on_end(self, _: Any) -> None:
        """Do nothing: who waits sees the end."""


@cache
def _compilations() -> _Compilations:
    listener = _Compilations()
    _event.register("numba:compile", listener)
    return listener


def watch() -> None:
    """Begin to count and to log; once for the process."""
    _compilations()


def compilations() -> int:
    """Return how many functions were compiled since `watch`, and not read from disk."""
    return _compilations().begun

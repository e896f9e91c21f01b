"""Imports many modules without collections of garbage between them.

Python collects after every so many new objects, and modules are made of objects that live on: of
the imports of the service these passes are a quarter. Loads nothing.
"""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def gc_paused() -> Iterator[None]:
    """Return a context without collections; what it made is left out of those that follow."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if was_enabled:
            gc.enable()

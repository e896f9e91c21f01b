"""Starts the sound process before the caller has imported anything that takes long.

Loads without torch: both processes then import it at the same time.
"""

import atexit
import multiprocessing
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from typing import NamedTuple

from app.imports import uncollected


class SoundStart(NamedTuple):
    """A process that waits for the function that loads its model."""

    process: SpawnProcess
    pipe: Connection


def start() -> SoundStart:
    """Start the process; it ends when the pipe does, and with this process."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_serve, args=(theirs,), name="speech-sound", daemon=True)
    process.start()
    theirs.close()  # so that the pipe ends with the process
    # It ignores SIGTERM, which may be sent to a whole service while it still drains. A caller that
    # exits without `SoundProcess.close` would wait for it for ever.
    atexit.register(process.kill)
    return SoundStart(process, ours)


def _serve(pipe: Connection) -> None:
    with uncollected():
        from app.engine.sound.process.server import serve

    serve(pipe)

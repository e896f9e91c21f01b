"""The sound process begins, before whoever starts it has imported anything that takes long.

Loads without torch: both processes then import it at the same time.
"""

import atexit
import multiprocessing
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from typing import NamedTuple


class SoundStart(NamedTuple):
    """A process that waits for the model it is to load."""

    process: SpawnProcess
    pipe: Connection


def start() -> SoundStart:
    """Start the process; it ends when the pipe does, and with this one."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_serve, args=(theirs,), name="speech-sound", daemon=True)
    process.start()
    theirs.close()  # so that the pipe ends with the process
    # It is deaf to SIGTERM, which may be for all of a service while it still drains; who ends
    # without `SoundProcess.close` would wait for it for ever.
    atexit.register(process.kill)
    return SoundStart(process, ours)


def _serve(pipe: Connection) -> None:
    from app.engine.sound.process.server import serve

    serve(pipe)

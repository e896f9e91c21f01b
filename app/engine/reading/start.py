"""Starts the text process. Loads without torch: see `app.engine.child`."""

import os
from multiprocessing.connection import Connection

from app.engine.child import Child
from app.engine.child import start as start_child

_NICE = 5
"""Added to the niceness of the process: where processors are scarce, speech that has begun goes
before texts. With 10 a short text waited up to a quarter of a second beside others."""


def start() -> Child:
    """Start the process; it waits for the configuration of the model."""
    return start_child("speech-text", _serve)


def _serve(pipe: Connection) -> None:
    from app.engine.reading.server import serve

    os.nice(_NICE)
    serve(pipe)

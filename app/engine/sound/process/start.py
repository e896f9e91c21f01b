"""Starts the sound process. Loads without torch: see `app.engine.child`."""

from multiprocessing.connection import Connection

from app.engine.child import Child
from app.engine.child import start as start_child
from app.imports import uncollected


def start() -> Child:
    """Start the process; it waits for the function that loads its model."""
    return start_child("speech-sound", _serve)


def _serve(pipe: Connection) -> None:
    with uncollected():
        from app.engine.sound.process.server import serve

    serve(pipe)

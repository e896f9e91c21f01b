"""Exclude the loaded model from garbage collection, whose full passes stop every thread.

Modules, schemas and the model are some 600,000 objects that live for ever. Scanning them takes 0.1
s or more, in whichever thread triggers the collection, the event loop's included.
"""

import gc
import threading
import time

from app.engine.engine import SpeechEngine

_POLL_S = 0.1
_LOADING = frozenset({"new", "loading", "warming"})


def freeze_when_ready(engine: SpeechEngine) -> threading.Thread:
    """Call `gc.freeze` in a thread, which is returned, once an engine is ready or has failed."""

    def wait() -> None:
        while engine.status.state in _LOADING:
            time.sleep(_POLL_S)
        if engine.status.state == "ready":
            gc.unfreeze()  # what was frozen while it started, some of which is garbage
            gc.collect()
            gc.freeze()

    thread = threading.Thread(target=wait, name="gc-freeze", daemon=True)
    thread.start()
    return thread

"""What was loaded is left out of the collector's rounds: a full one holds every thread.

Modules, schemas and the model are some 600,000 objects that stay. To go through them takes a tenth
of a second or more, in the event loop as likely as anywhere, whenever enough was allocated since.
"""

import gc
import threading
import time

from app.engine.engine import SpeechEngine

_LOOK_S = 0.1
_COMING = frozenset({"new", "loading", "warming"})


def exempt_once_loaded(engine: SpeechEngine) -> threading.Thread:
    """Exempt all that is there once an engine is ready, from a thread of its own.

    Args:
        engine: One that is started, or will be.

    Returns:
        The thread, which ends then, or when the engine will never be ready.
    """

    def wait() -> None:
        while engine.status.state in _COMING:
            time.sleep(_LOOK_S)
        if engine.status.state == "ready":
            gc.collect()
            gc.freeze()

    thread = threading.Thread(target=wait, name="exempt-loaded", daemon=True)
    thread.start()
    return thread

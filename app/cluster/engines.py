"""Which engine a replica or a worker has: that of the settings, or one that is named."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from app.engine.engine import SpeechEngine
    from app.settings import Settings


def load_engine(path: str, settings: "Settings") -> "SpeechEngine | None":
    """Return the engine that a function makes; None for that of the settings.

    Args:
        path: Import path, module:function; empty: None.
        settings: What the function is given.
    """
    if not path:
        return None
    module, _, name = path.partition(":")
    engine: SpeechEngine = getattr(import_module(module), name)(settings)
    return engine

"""Where training keeps what it makes.

The cache lies outside the repository. What is exported lies in its folder `next`, until it is
better than what ships in `weights` and takes its place. All else may be deleted at any time.
"""

import os
from pathlib import Path

from app.settings import BUILTIN_MODEL


def _folder() -> Path:
    chosen = os.environ.get("VALLE_TRAINING_CACHE")
    return Path(chosen) if chosen else Path.home() / ".cache" / "valle-serve" / "training"


NEXT_MODEL = _folder() / "next"


def present_model() -> Path:
    """Return the model that training goes on from: the next where it has begun, or what ships."""
    return NEXT_MODEL if (NEXT_MODEL / "codec.safetensors").exists() else BUILTIN_MODEL


def cache_folder() -> Path:
    """Return the cache (``VALLE_TRAINING_CACHE``, else in the user's cache), made if missing."""
    folder = _folder()
    folder.mkdir(parents=True, exist_ok=True)
    return folder

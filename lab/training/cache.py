"""Where training keeps what it makes.

The cache lies outside the repository and is safe to delete at any time. What is exported lies in
`weights/next`, until it is better than what ships in `weights` and takes its place.
"""

import os
from pathlib import Path

from app.settings import BUILTIN_MODEL

NEXT_MODEL = BUILTIN_MODEL / "next"


def present_model() -> Path:
    """Return the model that training goes on from: the next where it has begun, or what ships."""
    return NEXT_MODEL if (NEXT_MODEL / "codec.safetensors").exists() else BUILTIN_MODEL


def cache_folder() -> Path:
    """Return the cache (``VALLE_TRAINING_CACHE``, else in the user's cache), made if missing."""
    chosen = os.environ.get("VALLE_TRAINING_CACHE")
    folder = Path(chosen) if chosen else Path.home() / ".cache" / "valle-serve" / "training"
    folder.mkdir(parents=True, exist_ok=True)
    return folder

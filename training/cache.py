"""Where training keeps what it makes: outside the repository, safe to delete at any time."""

import os
from pathlib import Path


def cache_folder() -> Path:
    """Return the cache (``VALLE_TRAINING_CACHE``, else in the user's cache), made if missing."""
    chosen = os.environ.get("VALLE_TRAINING_CACHE")
    folder = Path(chosen) if chosen else Path.home() / ".cache" / "valle-serve" / "training"
    folder.mkdir(parents=True, exist_ok=True)
    return folder

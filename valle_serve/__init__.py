"""valle-serve, installed: what `pip install` gives, and the repository by another name.

In the repository `app`, `models`, `samplers` and `weights` lie side by side at the top. Such names
belong to nobody's site-packages, so a wheel holds them in the folder `lib` of this package
(`hatch_build.py`), which is put on the path when the service is asked for, and not before. No
module is renamed: what is tested is what is installed.
"""

import sys
from pathlib import Path
from typing import Any

_LIB = Path(__file__).parent / "lib"


def main() -> int:
    """Run the command line; returns the exit status, as `app.cli.main` tells it."""
    look_in_lib()
    from app.cli import main as run

    return run()


def create_app() -> Any:
    """Return the ASGI application, for ``uvicorn --factory valle_serve:create_app`` and others."""
    look_in_lib()
    from app.main import create_app as create

    return create()


def look_in_lib() -> None:
    """Find our modules first; in a checkout they are found as they are."""
    if _LIB.is_dir() and str(_LIB) not in sys.path:
        sys.path.insert(0, str(_LIB))


def __getattr__(name: str) -> Any:
    """Return `Speaker` when it is asked for: it imports torch, which the command line may not."""
    if name == "Speaker":
        from valle_serve.speaker import Speaker

        return Speaker
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

"""valle-serve, installed: what `pip install` gives, and the repository by another name.

In the repository `app`, `gpu`, `models`, `samplers` and `weights` lie side by side at the top. Such
names belong to nobody's site-packages, so a wheel has them in this package, with their imports
renamed (`hatch_build.py`).
"""

from typing import Any


def main() -> int:
    """Run the command line; returns the exit status, as `app.cli.main` tells it."""
    from app.cli import main as run

    return run()


def create_app() -> Any:
    """Return the ASGI application, for ``uvicorn --factory valle_serve:create_app`` and others."""
    from app.main import create_app as create

    return create()


def __getattr__(name: str) -> Any:
    """Return `Speaker` or `samplers` when it is asked for: the command line may not load torch."""
    if name == "Speaker":
        from valle_serve.speaker import Speaker

        return Speaker
    if name == "samplers":
        import samplers

        return samplers
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

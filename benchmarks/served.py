"""A server to measure: one that is started for it, in a process of its own, or any that runs."""

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path

import httpx

READY_WITHIN_S = 300.0
_ROOT = Path(__file__).resolve().parents[1]


class NotServed(RuntimeError):
    """The server did not come up."""


@contextmanager
def served(**settings: str | float) -> Iterator[str]:
    """Serve with settings; give the address once it is ready.

    Args:
        settings: Of `app.settings`, by name. Where they say nothing the environment holds.

    Raises:
        NotServed: It ended, or did not become ready within five minutes.
    """
    chosen = {"port": 0, "log_level": "warning"} | settings
    environment = os.environ | {f"TTS_{k.upper()}": str(v) for k, v in chosen.items()}
    process = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.observed"],
        cwd=_ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        if not url:
            raise NotServed("the server ended at its start; what it said is above")
        _wait_until_ready(url, process)
        yield url
    finally:
        process.terminate()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


def served_or(url: str | None, **settings: str | float) -> AbstractContextManager[str]:
    """Serve with settings, unless there is the address of a server that runs."""
    return nullcontext(url) if url else served(**settings)


def argument_parser(description: str | None, *, needs_vitals: bool) -> argparse.ArgumentParser:
    """Return what every measurement of a server can be asked.

    Args:
        description: Of the command.
        needs_vitals: Whether it must be a server that tells its vitals, and so one it starts.
    """
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    if not needs_vitals:
        parser.add_argument("--url", help="of a server that runs; else one is started")
    parser.add_argument("--out", type=Path, help="JSON file")
    return parser


def _wait_until_ready(url: str, process: subprocess.Popen[str]) -> None:
    ends_s = time.monotonic() + READY_WITHIN_S
    with httpx.Client(base_url=url) as client:
        while True:
            if process.poll() is not None:
                raise NotServed("the server ended while it loaded; what it said is above")
            try:
                if client.get("/ready").status_code == 200:
                    return
            except httpx.TransportError:
                pass  # it does not listen yet
            if time.monotonic() > ends_s:
                raise NotServed(f"the server was not ready within {READY_WITHIN_S:g} s")
            time.sleep(0.1)

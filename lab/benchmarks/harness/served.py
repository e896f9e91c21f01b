"""Servers to measure: started in a process, in a thread of this process, or already running."""

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path

import httpx2
import uvicorn
from fastapi import FastAPI

READY_WITHIN_S = 300.0
_ROOT = Path(__file__).resolve().parents[3]


class NotServed(RuntimeError):
    """The server did not become ready."""


@contextmanager
def served(prefix: Sequence[str] = (), /, **settings: str | float) -> Iterator[str]:
    """Start a server in a new process; yield its URL once it is ready.

    ``prefix`` are words of the command line before the server's own, ``settings`` fields of
    `Settings`; others come from the environment. Raises NotServed as `wait_until_ready`.
    """
    chosen = {"port": 0, "log_level": "warning"} | settings
    environment = os.environ | {f"TTS_{k.upper()}": str(v) for k, v in chosen.items()}
    process = subprocess.Popen(
        [*prefix, sys.executable, "-m", "lab.benchmarks.harness.instrumented"],
        cwd=_ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        if not url:
            raise NotServed("the server ended at its start; its output is above")
        wait_until_ready(url, lambda: process.poll() is None)
        yield url
    finally:
        process.terminate()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


@contextmanager
def served_here(app: FastAPI) -> Iterator[str]:
    """Serve an application in a thread of this process; yield its URL once it is ready.

    Raises NotServed as `wait_until_ready`.
    """
    config = uvicorn.Config(app, host="127.0.0.1", port=0, log_config=None, access_log=False)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, name="server")
    thread.start()
    try:
        while not server.started and thread.is_alive():
            time.sleep(0.01)
        if not server.started:
            raise NotServed("the server ended at its start; its output is above")
        url = f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
        wait_until_ready(url, thread.is_alive)
        yield url
    finally:
        server.should_exit = True
        thread.join()


def served_or(url: str | None, **settings: str | float) -> AbstractContextManager[str]:
    """Start a server as `served`, or use the URL of a running one."""
    return nullcontext(url) if url else served(**settings)


def wait_until_ready(url: str, is_alive: Callable[[], bool]) -> None:
    """Return once a server takes requests.

    Raises NotServed if it ended, or did not become ready within five minutes.
    """
    ends_s = time.monotonic() + READY_WITHIN_S
    with httpx2.Client(base_url=url, trust_env=False) as client:
        while True:
            if not is_alive():
                raise NotServed("the server ended while it loaded; its output is above")
            try:
                if client.get("/ready").status_code == 200:
                    return
            except httpx2.TransportError:
                pass  # it does not listen yet
            if time.monotonic() > ends_s:
                raise NotServed(f"the server was not ready within {READY_WITHIN_S:g} s")
            time.sleep(0.1)

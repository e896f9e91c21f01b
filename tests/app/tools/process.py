"""Whole processes, for what only a process shows: its signals, its log and its status."""

import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerProcess
from pathlib import Path

import httpx

from app import logs
from app.main import create_app
from app.server import serve
from app.settings import Settings
from tests.app.tools.serving import free_port, until
from tests.fakes import FakeBackend, fake_engine

CHUNK_S = 0.1

# To import what they need takes seconds: that is done once, and each is forked from there.
_FORKS = multiprocessing.get_context("forkserver")
_FORKS.set_forkserver_preload([__name__])


class Served:
    """The process, a client of it, and its log so far."""

    def __init__(
        self, process: ForkServerProcess, client: httpx.Client, log: Path, steps: Connection
    ) -> None:
        self.process, self.client, self._log, self._steps = process, client, log, steps

    @property
    def log(self) -> list[str]:
        return self._log.read_text().splitlines()

    def let(self, frames: int) -> None:
        """Let a text with "wait" in it be spoken a little further."""
        self._steps.send(frames)

    def until_gone(self) -> int | None:
        self.process.join(60)
        return self.process.exitcode


@contextmanager
def process(folder: Path, **settings: object) -> Iterator[Served]:
    """Serve a fake in a process of its own until the end of the block."""
    port = free_port()
    settings = {"slots": 1, "port": port} | settings
    chosen = {f"TTS_{name.upper()}": str(value) for name, value in settings.items()}
    log, (told, steps) = folder / "log", multiprocessing.Pipe(duplex=False)
    running = forked(log, chosen, _serve, told)
    with steps, told, httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60) as client:
        served = Served(running, client, log, steps)
        try:
            until(lambda: _answers(served))
            yield served
        finally:
            running.kill()
            running.join()


def _answers(served: Served) -> bool:
    assert served.process.exitcode is None, served.log
    try:
        return served.client.get("/ready").status_code == 200
    except httpx.ConnectError:
        return False


def forked(
    log: Path, variables: Mapping[str, str], run: Callable[..., int], *arguments: object
) -> ForkServerProcess:
    """Start a process that runs a function, its result the status, with its log in a file."""
    log.touch()
    told = (log, os.environ | variables, run, *arguments)
    running = _FORKS.Process(target=_run, args=told, daemon=True)
    running.start()
    return running


def _run(log: Path, environment: dict[str, str], run: Callable[..., int], *args: object) -> None:
    os.environ.update(environment)
    os.dup2(os.open(log, os.O_WRONLY), sys.stderr.fileno())
    # A shell has what it starts in the background ignore it.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.exit(run(*args))


def _serve(steps: Connection) -> int:
    settings = Settings()
    logs.configure(settings.log_level, settings.log_format)
    speaking = FakeBackend(CHUNK_S, block={"wait": "ar"}, fail_at={"crash": "ar thread"})

    def obey() -> None:
        while True:
            speaking.let(steps.recv())

    threading.Thread(target=obey, daemon=True).start()
    return not serve(create_app(settings, fake_engine(speaking, slots=settings.slots)), settings)

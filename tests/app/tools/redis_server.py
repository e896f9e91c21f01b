"""A real Redis on a free port, which can be killed and started again."""

import shutil
import signal
import subprocess
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import TypeVar

import pytest
import redis
from prometheus_client import CollectorRegistry

from app.storage.shared_state import SharedState
from tests.app.tools.serving import free_port, until

T = TypeVar("T")


class RedisServer:
    """A `redis-server` that stores nothing on disk."""

    def __init__(self, port: int) -> None:
        self.url = f"redis://127.0.0.1:{port}/0"
        self.client = redis.Redis.from_url(self.url)
        self._port = port
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        command = ["redis-server", "--port", str(self._port), "--save", "", "--appendonly", "no"]
        self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        until(self._answers)

    def kill(self) -> None:
        """End it as a power cut does."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def hang(self) -> None:
        """Let it take connections and answer nothing."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def _answers(self) -> bool:
        try:
            return bool(self.client.ping())
        except redis.ConnectionError:
            return False


@asynccontextmanager
async def processes(
    server: RedisServer, number: int, make: Callable[[SharedState], T], *, closed: bool = False
) -> AsyncIterator[list[T]]:
    """Give what several processes make of their states over one Redis, before these start."""
    states = [
        SharedState(server.url, closed_if_away=closed, registry=CollectorRegistry())
        for _ in range(number)
    ]
    made = [make(state) for state in states]
    for state in states:
        await state.start()
    try:
        yield made
    finally:
        for state in states:
            await state.stop()


@contextmanager
def redis_running() -> Iterator[RedisServer]:
    """Run a Redis until the end of the block; skip the test where there is none to run."""
    if shutil.which("redis-server") is None:
        pytest.skip("redis-server is not installed")
    server = RedisServer(free_port())
    server.start()
    try:
        yield server
    finally:
        server.kill()
        server.client.close()

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import uvicorn
from fastapi import FastAPI

from app.server import server_config
from app.settings import Settings


@contextmanager
def served(app: FastAPI, *, until_ready: bool = True, port: int = 0) -> Iterator[httpx.Client]:
    """Serve an application as it is served on a loopback port, 0: a free one; give a client."""
    settings: Settings = app.state.services.settings
    here = settings.model_copy(update={"port": port, "log_level": "warning"})
    server = uvicorn.Server(server_config(app, here))
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        while not server.started:
            assert thread.is_alive(), "the server did not start"
            time.sleep(0.01)
        port = server.servers[0].sockets[0].getsockname()[1]
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60, verify=False) as client:
            while until_ready and client.get("/ready").status_code != 200:
                time.sleep(0.02)
            yield client
    finally:
        server.should_exit = True
        thread.join()


def settings_of(model: str | Path, **rest: Any) -> Settings:
    """Return the settings of a model in float32 on one thread of a CPU, unless ``rest`` differs."""
    usual: dict[str, Any] = {"device": "cpu", "weights": "float32", "threads": 1}
    return Settings(model=str(model), **usual | rest)


def free_port() -> int:
    """Return a port of this machine that nobody listens at."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


def connected(client: httpx.Client, source: str = "127.0.0.1") -> socket.socket:
    """Return a further connection to a server, from an address."""
    place = client.base_url.host, client.base_url.port or 80
    return socket.create_connection(place, timeout=20, source_address=(source, 0))


def until(condition: Callable[[], object]) -> None:
    """Wait until something holds; fail if it never does."""
    ends_s = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < ends_s, "it never came true"
        time.sleep(0.01)

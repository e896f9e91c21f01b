"""The service as `serve` runs it, with more routes: vitals, worst callback, child processes.

    TTS_PORT=0 python -m lab.benchmarks.harness.instrumented

Settings come from `TTS_*`. The first line on stdout is the URL, printed once the port is open.
"""

import logging
import multiprocessing
from dataclasses import asdict
from socket import socket

import uvicorn
from fastapi import FastAPI

from app.garbage_collection import freeze_when_ready
from app.main import create_app
from app.server import server_config
from app.settings import Settings
from lab.benchmarks.harness.loop_lag import Callback, Watchdog, watched
from lab.benchmarks.harness.vitals import PATH, collect_garbage, take_vitals

LAG_PATH = "/loop_lag"
CHILDREN_PATH = "/children"


def observed_app(settings: Settings, watchdog: Watchdog | None = None) -> FastAPI:
    """Return the application with the additional routes, that of its loop if it is watched."""
    app = create_app(settings)

    @app.get(PATH, include_in_schema=False)
    async def vitals(collect: bool = False) -> dict[str, int | None]:
        if collect:
            collect_garbage()
        return asdict(take_vitals(app.state.services.engine))

    @app.get(CHILDREN_PATH, include_in_schema=False)
    async def children() -> dict[str, int | None]:
        return {child.name: child.pid for child in multiprocessing.active_children()}

    if watchdog is not None:

        @app.get(LAG_PATH, include_in_schema=False)
        async def loop_lag() -> dict[str, float | str]:
            worst = watchdog.worst[0] if watchdog.worst else Callback(0.0, "")
            watchdog.forget()
            return {"cpu_s": worst.cpu_s, "what": worst.what}

    return app


class _AnnouncingServer(uvicorn.Server):
    """Prints its URL once it listens."""

    async def startup(self, sockets: list[socket] | None = None) -> None:
        await super().startup(sockets)
        # Not with a socket made beforehand: asyncio leaves Nagle's algorithm on for those, and a
        # response on a reused connection then waits 40 ms for the client's delayed ACK.
        host, port = self.servers[0].sockets[0].getsockname()[:2]
        print(f"http://{host}:{port}", flush=True)


def main() -> None:
    """Serve until interrupted."""
    settings = Settings()
    logging.basicConfig(level=settings.log_level.upper())
    with watched(here_too=True) as watchdog:
        app = observed_app(settings, watchdog)
        freeze_when_ready(app.state.services.engine)  # as `app.server.serve` does
        _AnnouncingServer(server_config(app, settings)).run()


if __name__ == "__main__":
    main()

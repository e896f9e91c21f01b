"""The service as `serve` runs it, and beside its routes one that tells its `Vitals`.

    TTS_PORT=0 python -m benchmarks.observed

Settings come from `TTS_*`. The first line on stdout is the address, written when it is listened on.
"""

import logging
from dataclasses import asdict

import uvicorn
from fastapi import FastAPI

from app.main import create_app
from app.settings import Settings
from benchmarks.vitals import PATH, collect_garbage, take_vitals


def observed_app(settings: Settings) -> FastAPI:
    """Return the application with the route of its vitals."""
    app = create_app(settings)

    @app.get(PATH, include_in_schema=False)
    async def vitals(collect: bool = False) -> dict[str, int | None]:
        if collect:
            collect_garbage()
        return asdict(take_vitals(app.state.engine))

    return app


def main() -> None:
    """Serve until interrupted."""
    settings = Settings()
    logging.basicConfig(level=settings.log_level.upper())
    config = uvicorn.Config(
        observed_app(settings),
        host=settings.host,
        port=settings.port,
        log_level="warning",
        ws_max_size=settings.max_body_bytes,
        timeout_graceful_shutdown=5,
    )
    socket = config.bind_socket()
    host, port = socket.getsockname()[:2]
    print(f"http://{host}:{port}", flush=True)
    uvicorn.Server(config).run(sockets=[socket])


if __name__ == "__main__":
    main()

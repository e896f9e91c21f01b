"""The process that serves an application, and how it ends: what runs comes to its end first.

uvicorn alone takes its socket down at once and cuts WebSockets. Here the first signal makes
`/ready` answer 503 and refuses new work, while the socket still answers; once nothing is in work,
or the time is over, uvicorn ends as ever. A second signal does not wait.
"""

import asyncio
import logging
import signal
from collections.abc import Awaitable, Callable
from contextlib import suppress
from socket import socket
from types import FrameType

import uvicorn
from fastapi import FastAPI

from app.api.admission import Admission
from app.connections import bounded
from app.garbage import exempt_once_loaded
from app.settings import Settings
from app.websockets import BoundedWebSocket

log = logging.getLogger(__name__)

_MOST_HEAD_BYTES = 32_768
"""Of a head; the 6,500 headers that fit take 9 ms of the event loop."""

_CUT_AFTER_S = 2  # for what is no work, once that is done
_THIS_MACHINE = frozenset({"127.0.0.1", "::1", "localhost"})


def serve(app: FastAPI, settings: Settings) -> None:
    """Serve an application until a signal ends the process.

    Args:
        app: As `create_app` makes it.
        settings: Where to listen, and how long to wait at the end.
    """
    if settings.host not in _THIS_MACHINE and not settings.asks_for_keys:
        log.warning("whoever reaches %s may use it: set TTS_API_KEYS_FILE", settings.host)
    exempt_once_loaded(app.state.engine)
    admission: Admission = app.state.admission
    with suppress(KeyboardInterrupt):  # uvicorn has ended by then and raises its signals again
        DrainingServer(
            server_config(app, settings), lambda: admission.close(settings.drain_timeout_s)
        ).run()


def server_config(app: FastAPI, settings: Settings) -> uvicorn.Config:
    """Return how uvicorn serves an application, as the settings say."""
    return uvicorn.Config(
        app,
        host=settings.host,
        port=settings.port,
        log_config=None,  # app.logs has seen to it
        # Under debug it writes down what a WebSocket carries: keys and texts.
        log_level="info" if settings.log_level == "debug" else settings.log_level,
        access_log=False,
        server_header=False,
        http=bounded(settings.header_timeout_s, settings.max_connections),
        ws=BoundedWebSocket,
        h11_max_incomplete_event_size=_MOST_HEAD_BYTES,
        ws_max_size=settings.max_body_bytes,
        timeout_graceful_shutdown=_CUT_AFTER_S,
    )


class DrainingServer(uvicorn.Server):
    """Ends at the first signal, but not before what runs is done."""

    def __init__(self, config: uvicorn.Config, drain: Callable[[], Awaitable[None]]) -> None:
        """Take an application.

        Args:
            config: What is served, and where.
            drain: Returns once the server may end.
        """
        super().__init__(config)
        self._drain = drain
        self._loop: asyncio.AbstractEventLoop | None = None
        self._draining: asyncio.Task[None] | None = None
        self._told = False

    async def startup(self, sockets: list[socket] | None = None) -> None:
        """Begin to listen."""
        self._loop = asyncio.get_running_loop()
        await super().startup(sockets)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Take a signal: drain at the first, end at the next. Runs amid any other code."""
        if self._told or self._loop is None or not self.started:
            super().handle_exit(sig, frame)
            return
        self._told = True
        self._loop.call_soon_threadsafe(self._begin_to_end, signal.Signals(sig))

    def _begin_to_end(self, sig: signal.Signals) -> None:
        assert self._loop is not None
        self._draining = self._loop.create_task(self._drain_and_end(sig))

    async def _drain_and_end(self, sig: signal.Signals) -> None:
        try:
            await self._drain()
        finally:
            super().handle_exit(sig, None)

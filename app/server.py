"""The process that serves an application, and how it ends: what runs comes to its end first.

uvicorn alone takes its socket down at once and cuts WebSockets. Here the first signal makes
`/ready` answer 503 and refuses new work, while the socket still answers; once nothing is in work,
or the time is over, uvicorn ends as ever. A second signal does not wait.
"""

import asyncio
import logging
import os
import signal
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from socket import socket
from types import FrameType

import uvicorn
from fastapi import FastAPI

from app.api.gate.admission import Admission
from app.api.gate.heads import MAX_HEAD_BYTES
from app.connections import bounded
from app.engine.engine import SpeechEngine
from app.garbage import exempt_once_loaded
from app.settings import Settings
from app.websockets import BoundedWebSocket

log = logging.getLogger(__name__)

_MOST_HEAD_BYTES = 2 * MAX_HEAD_BYTES
"""Of a head that comes in parts, which h11 refuses with a plain 400 before it can be told more."""

_CUT_AFTER_S = 2  # for what is no work, once that is done
_TICKS_A_LOOK = 50
_STUCK = 1  # exit status
_THIS_MACHINE = frozenset({"127.0.0.1", "::1", "localhost"})


def serve(app: FastAPI, settings: Settings) -> bool:
    """Serve an application until a signal, or an engine that cannot go on, ends the process.

    Args:
        app: As `create_app` makes it.
        settings: Where to listen, and how long to wait at the end.

    Returns:
        Whether it ended because it was told to; the log says why if not.

    Raises:
        KeyboardInterrupt: It was told by a Ctrl-C.
    """
    if settings.host not in _THIS_MACHINE and not settings.asks_for_keys:
        log.warning("whoever reaches %s may use it: set TTS_API_KEYS_FILE", settings.host)
    exempt_once_loaded(app.state.engine)
    admission: Admission = app.state.admission
    engine: SpeechEngine = app.state.engine
    server = DrainingServer(
        server_config(app, settings),
        lambda: admission.close(settings.drain_timeout_s),
        why_stuck=lambda: _why_stuck(engine),
        port_file=settings.port_file,
    )
    engine.when_failed(server.give_up)
    logging.getLogger("uvicorn.error").addFilter(_told_in_a_line)
    server.run()
    return not server.gave_up


def _why_stuck(engine: SpeechEngine) -> str | None:
    """Return why an engine that has not failed is of no use any more; None if it is."""
    status = engine.status
    if status.healthy or status.state == "failed":
        return None
    return f"the engine has not moved for {status.beat_age_s:.0f} s"


def _told_in_a_line(record: logging.LogRecord) -> bool:
    """Say without a traceback what is no mistake: a request that was cut at the end of a drain."""
    if record.exc_info and isinstance(record.exc_info[1], asyncio.CancelledError):
        record.exc_info, record.levelno, record.levelname = None, logging.WARNING, "WARNING"
        record.msg, record.args = "a request was cut: the time to drain is over", ()
    return True


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
    """Ends at the first signal, but not before what runs is done.

    Attributes:
        gave_up: Whether it ended because the engine could not go on.
    """

    def __init__(
        self,
        config: uvicorn.Config,
        drain: Callable[[], Awaitable[None]],
        why_stuck: Callable[[], str | None] = lambda: None,
        port_file: str = "",
    ) -> None:
        """Take an application.

        Args:
            config: What is served, and where.
            drain: Returns once the server may end.
            why_stuck: Says why the process is of no use any more; None while it is.
            port_file: Where the port is written to; empty: nowhere.
        """
        super().__init__(config)
        self._drain, self._why_stuck, self._port_file = drain, why_stuck, port_file
        self.gave_up = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._draining: asyncio.Task[None] | None = None
        self._told = False

    async def startup(self, sockets: list[socket] | None = None) -> None:
        """Begin to listen, and tell where."""
        self._loop = asyncio.get_running_loop()
        await super().startup(sockets)
        if self._port_file and self.started:
            port = self.servers[0].sockets[0].getsockname()[1]
            try:
                Path(self._port_file).write_text(f"{port}\n", "ascii")
            except OSError as error:
                log.warning("the port cannot be told: %s: %s", self._port_file, error.strerror)

    def give_up(self) -> None:
        """End soon: nobody can be served any more. From any thread."""
        self.gave_up = True
        if self._loop is not None:
            with suppress(RuntimeError):  # the loop ended meanwhile
                self._loop.call_soon_threadsafe(self._end)

    async def on_tick(self, counter: int) -> bool:
        """Look whether the engine still moves, now and then; uvicorn calls this ten times a second.

        A worker that hangs cannot be ended, so the process ends without it.
        """
        if counter % _TICKS_A_LOOK == 0 and (why := self._why_stuck()) is not None:
            log.critical("%s: the process ends, so that it may be started again", why)
            os._exit(_STUCK)
        return await super().on_tick(counter)

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
            if sig == signal.SIGTERM:
                self._end()  # in order; uvicorn would raise the signal once more, as if it had died
            else:
                super().handle_exit(sig, None)

    def _end(self) -> None:
        self.should_exit = True

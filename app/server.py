"""The server process and its graceful shutdown.

uvicorn alone closes its socket at the first signal and cuts WebSockets. Here the first signal makes
`/ready` answer 503 and refuses new work while the socket stays open; when all work is done, or the
drain timeout has passed, uvicorn shuts down. A second signal shuts down at once.
"""

import asyncio
import logging
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractContextManager, asynccontextmanager, nullcontext, suppress
from pathlib import Path
from socket import socket
from tempfile import TemporaryDirectory
from time import monotonic
from types import FrameType

import uvicorn
from fastapi import FastAPI

from app.api.middleware.head import MAX_HEAD_BYTES
from app.api.middleware.readers import longest_wait_s
from app.api.services import Services
from app.connections import BoundedWebSocket, connection_class
from app.engine.engine import SpeechEngine
from app.garbage_collection import freeze_when_ready
from app.settings import Settings

log = logging.getLogger(__name__)

_MOST_HEAD_BYTES = 2 * MAX_HEAD_BYTES
"""Size at which h11 refuses a head that arrives in parts, with a plain 400."""

_CLOSE_TIMEOUT_S = 2  # for idle connections, after the drain
_TICKS_PER_CHECK = 50
_BACKLOG = 128
_START_POLL_S = 0.01
_EXIT_STUCK = 1


def serve(app: FastAPI, settings: Settings, began_s: float | None = None) -> bool:
    """Serve an application until a signal, or a failure of the engine: then return False."""
    if not settings.is_local and not settings.asks_for_keys:
        log.warning(
            "no API key is required of anyone who can reach %s: set TTS_API_KEYS_FILE",
            settings.host,
        )
    services: Services = app.state.services
    engine = services.engine
    admission = services.admission
    freeze_when_ready(engine)
    server = DrainingServer(
        server_config(app, settings),
        lambda: admission.close(settings.drain_timeout_s),
        why_stuck=lambda: _why_stuck(engine),
        port_file=settings.port_file,
        when_ready=lambda: engine.status.state == "ready",
        began_s=monotonic() if began_s is None else began_s,
    )
    engine.lifecycle.when_failed(server.stop_failed)
    logging.getLogger("uvicorn.error").addFilter(_shorten_cancelled)
    server.run()
    return not server.failed


def _why_stuck(engine: SpeechEngine) -> str | None:
    """Return why an engine that has not failed cannot serve any more; None if it can."""
    status = engine.status
    if status.healthy or status.state == "failed":
        return None
    return f"the engine has made no progress for {status.beat_age_s:.0f} s"


def _shorten_cancelled(record: logging.LogRecord) -> bool:
    """Replace the traceback of a request that was cancelled after the drain timeout by one line."""
    # uvicorn says that it runs long before the model is loaded; we say so then.
    if str(record.msg).startswith("Uvicorn running on"):
        return False
    if record.exc_info and isinstance(record.exc_info[1], asyncio.CancelledError):
        record.exc_info = None
        record.levelno = logging.WARNING
        record.levelname = "WARNING"
        record.msg = "a request was cancelled: the drain timeout has passed"
        record.args = ()
    return True


def server_config(app: FastAPI, settings: Settings) -> uvicorn.Config:
    """Return uvicorn's configuration for an application."""
    services: Services = app.state.services
    return uvicorn.Config(
        app,
        host=settings.host,
        port=settings.port,
        log_config=None,  # app.logs configures it
        # At level debug uvicorn logs WebSocket messages: keys and texts.
        log_level="info" if settings.log_level == "debug" else settings.log_level,
        access_log=False,
        server_header=False,
        http=connection_class(
            settings.header_timeout_s, settings.stall_timeout_s, services.limits.connections
        ),
        ws=BoundedWebSocket,
        h11_max_incomplete_event_size=_MOST_HEAD_BYTES,
        ws_max_size=settings.max_body_bytes,
        # A ping waits behind all that its client has not read yet.
        ws_ping_timeout=longest_wait_s(settings.stall_timeout_s),
        timeout_graceful_shutdown=_CLOSE_TIMEOUT_S,
        # asyncio tries so often at once to accept when there are no file descriptors.
        backlog=_BACKLOG,
    )


class DrainingServer(uvicorn.Server):
    """A uvicorn server that waits for running work before it shuts down.

    ``why_stuck`` returns why the process must be restarted, ``when_ready`` whether the address is
    to be logged, as requests are accepted; ``began_s`` is the monotonic time of the start.
    """

    def __init__(
        self,
        config: uvicorn.Config,
        drain: Callable[[], Awaitable[None]],
        why_stuck: Callable[[], str | None] = lambda: None,
        port_file: str = "",
        when_ready: Callable[[], bool] = lambda: False,
        began_s: float = 0.0,
    ) -> None:
        super().__init__(config)
        self._when_ready = when_ready
        self._began_s = began_s
        self._announced = False
        self._drain = drain
        self._why_stuck = why_stuck
        self._port_file = port_file
        self.failed = False  # whether it stopped because the engine failed
        self._loop: asyncio.AbstractEventLoop | None = None
        self._draining: asyncio.Task[None] | None = None
        self._signalled = False

    async def startup(self, sockets: list[socket] | None = None) -> None:
        """Listen, and write the port file."""
        self._loop = asyncio.get_running_loop()
        await super().startup(sockets)
        if self._port_file and self.started:
            port = self.servers[0].sockets[0].getsockname()[1]
            try:
                Path(self._port_file).write_text(f"{port}\n", "ascii")
            except OSError as error:
                log.warning("cannot write the port file %s: %s", self._port_file, error.strerror)

    def _url(self) -> str:
        """Return an address at which this machine reaches the server."""
        port = self.servers[0].sockets[0].getsockname()[1]
        host = "127.0.0.1" if self.config.host in {"0.0.0.0", "::"} else self.config.host
        return f"http://{f'[{host}]' if ':' in host else host}:{port}"

    def stop_failed(self) -> None:
        """Shut down because the engine has failed. Thread-safe."""
        self.failed = True
        if self._loop is not None:
            with suppress(RuntimeError):  # the loop has been closed
                self._loop.call_soon_threadsafe(self._stop)

    async def on_tick(self, counter: int) -> bool:
        """Check every 5 s that the engine still works; uvicorn calls this ten times a second.

        A thread that hangs cannot be stopped, so the process exits without cleaning up.
        """
        if counter % _TICKS_PER_CHECK == 0 and (why := self._why_stuck()) is not None:
            log.critical("%s: exiting so that the process can be restarted", why)
            os._exit(_EXIT_STUCK)
        if not self._announced and self._when_ready():
            self._announced = True
            took_s = monotonic() - self._began_s
            log.info("ready in %.1f s: open %s (studio), /docs (API)", took_s, self._url())
        return await super().on_tick(counter)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Handle a signal, from a signal handler: drain at the first, shut down at the second."""
        if self._signalled or self._loop is None or not self.started:
            super().handle_exit(sig, frame)
            return
        self._signalled = True
        self._loop.call_soon_threadsafe(self._start_drain, signal.Signals(sig))

    def _start_drain(self, sig: signal.Signals) -> None:
        assert self._loop is not None
        self._draining = self._loop.create_task(self._drain_and_stop(sig))

    async def _drain_and_stop(self, sig: signal.Signals) -> None:
        try:
            await self._drain()
        finally:
            if sig == signal.SIGTERM:
                self._stop()  # exit status 0; uvicorn would raise the signal again
            else:
                super().handle_exit(sig, None)

    def _stop(self) -> None:
        self.should_exit = True


class _PrivateServer(uvicorn.Server):
    """A uvicorn server that leaves signals to the command that runs it."""

    def capture_signals(self) -> AbstractContextManager[None]:  # type: ignore[override]
        """Capture none."""
        return nullcontext()


@asynccontextmanager
async def serve_privately(app: FastAPI) -> AsyncIterator[Path]:
    """Serve an application in this task's loop; yield the Unix socket, in a folder of this user."""
    # A socket's path has at most some 100 bytes, which the folder of TMPDIR may have already.
    with TemporaryDirectory(dir="/tmp") as folder:
        path = Path(folder, "socket")
        config = uvicorn.Config(
            app,
            uds=str(path),
            log_config=None,
            access_log=False,
            timeout_graceful_shutdown=_CLOSE_TIMEOUT_S,
        )
        server = _PrivateServer(config)
        serving = asyncio.create_task(server.serve())
        try:
            while not (server.started or serving.done()):
                await asyncio.sleep(_START_POLL_S)
            yield path
        finally:
            server.should_exit = True
            await serving

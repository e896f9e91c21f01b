"""The server of the Wyoming protocol, for Home Assistant.

The protocol has no keys, so it is for a network that is trusted.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Final

from app.api.middleware.access.clients import network_of
from app.api.middleware.readers import limit_send_buffer
from app.api.realtime.speech import ClientGone
from app.api.services import Services
from app.compat.wyoming.events import LINE_BYTES
from app.compat.wyoming.session import WyomingSession, log
from app.engine.errors import SpeechError

_LINGER_S: Final = 1.0


class WyomingServer:
    """Listens on a port for the time of a context."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._server: asyncio.Server | None = None
        self._serving: dict[asyncio.Task[None], asyncio.StreamWriter] = {}

    async def start(self) -> None:
        """Begin to listen."""
        settings = self._services.settings
        self._server = await asyncio.start_server(
            self._accept, settings.host, settings.wyoming_port, limit=LINE_BYTES
        )

    async def stop(self) -> None:
        """Listen no more, and drop all connections."""
        assert self._server is not None
        self._server.close()
        open_ = dict(self._serving)
        for task in open_:
            task.cancel()
        await asyncio.gather(*open_, return_exceptions=True)
        for writer in open_.values():  # a task that was cancelled before it began closes nothing
            writer.transport.abort()
        closing = (writer.wait_closed() for writer in open_.values())
        await asyncio.gather(*closing, return_exceptions=True)
        await self._server.wait_closed()

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve a connection in a task; asyncio's own would be unknown to `stop` until it runs."""
        limit_send_buffer(writer.transport)
        task = asyncio.create_task(self._serve(reader, writer))
        self._serving[task] = writer
        task.add_done_callback(self._serving.pop)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve a connection to its end, whatever comes."""
        peer = writer.get_extra_info("peername")
        client = network_of(str(peer[0])) if peer else ""
        services = self._services
        session = WyomingSession(reader, writer, services, client)
        try:
            with services.limits.connections.counted(client), services.live_place(client):
                await session.run()
        except SpeechError as error:
            with suppress(ClientGone):
                await session.error(error)
        except Exception:
            log.exception("a connection of the Wyoming protocol failed")
        finally:
            await _close(writer)


async def _close(writer: asyncio.StreamWriter) -> None:
    """Close a connection, with what its client has not taken a second later."""
    writer.close()
    closed = asyncio.ensure_future(writer.wait_closed())
    closed.add_done_callback(lambda one: one.cancelled() or one.exception())  # a reset is no news
    try:
        await asyncio.wait({closed}, timeout=_LINGER_S)
    finally:
        writer.transport.abort()


@asynccontextmanager
async def listening(services: Services) -> AsyncIterator[None]:
    """Serve the protocol for the time of a context, if the settings name a port."""
    if not services.settings.wyoming_port:
        yield
        return
    server = WyomingServer(services)
    await server.start()
    try:
        yield
    finally:
        await server.stop()

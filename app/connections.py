"""HTTP connections with limits that uvicorn lacks: time for a request head, and their number.

uvicorn alone would keep a connection for ever whose client sends its headers a byte at a time. It
applies backpressure to what the application sends over a WebSocket, but answers pings at once and
keeps reading: a client that sends pings and reads nothing would fill memory with pongs.

Each address has a share of the connections. Connections beyond the limit are not refused outright:
for a short time they may ask `/health` and `/ready`, so that an orchestrator does not restart a
service that is merely full.
"""

import asyncio
import logging
from http import HTTPStatus
from typing import Any

import h11
from starlette.datastructures import MutableHeaders
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send
from uvicorn._types import ASGIReceiveEvent, ASGISendEvent
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from app.api.errors import error_response, speech_error_response
from app.api.middleware.connections import OpenConnections, client_address
from app.api.middleware.readers import limit_send_buffer, longest_wait_s
from app.api.middleware.rules import PROBES

log = logging.getLogger(__name__)

_PROBE_CONNECTIONS = 32
"""Limit of connections that may only probe; beyond it the oldest is closed."""

_PROBE_TIMEOUT_S = 2.0
_STALL_GRACE_S = 1.0


READ_BYTES = 8192
"""Size of one read; a larger one may hold thousands of frames and block the event loop."""


def limit_read_size(transport: asyncio.BaseTransport) -> None:
    """Limit the size of a transport's reads; those of asyncio's selector loop are 256 KiB."""
    if hasattr(transport, "max_size"):
        transport.max_size = READ_BYTES


class BoundedConnection(H11Protocol):
    """An HTTP/1.1 connection with a timeout for request heads and a limit on their number.

    Between requests uvicorn's own keep-alive timeout applies, until the first byte of the next
    request. A connection that became a WebSocket has no timeout here, but counts towards the limit.
    """

    header_timeout_s: float  # seconds a client may take to send a request head
    # Seconds that bytes may wait for a client to read them, whatever they are and even if the
    # connection is being closed. `app.api.middleware.send` ends an answer earlier, and tells why
    stall_timeout_s: float
    open: OpenConnections  # the connections of the process, of every protocol
    _timeout: asyncio.TimerHandle | None = None
    _stall: asyncio.TimerHandle | None = None

    def connection_made(  # type: ignore[override]  # as in uvicorn
        self, transport: asyncio.Transport
    ) -> None:
        """Start the timeout for the first request; restrict a connection beyond the limit."""
        super().connection_made(transport)
        limit_read_size(transport)
        limit_send_buffer(transport)
        transport.set_write_buffer_limits(0)  # an answer is sent when the system has all of it
        self.open.http = self.connections
        if self.open.exceeded_by(client_address(self)):
            self._restrict_to_probes()
        self._update_timeout()

    def data_received(self, data: bytes) -> None:
        """Parse received bytes and restart or stop the timeout."""
        super().data_received(data)
        self._update_timeout()

    def connection_lost(self, exc: Exception | None) -> None:
        """Cancel the timeout and forget the connection."""
        self._cancel_timeout()
        self._cancel_stall()
        if self in self.open.probe_only:
            self.open.probe_only.remove(self)
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        """Note that bytes wait for the client; drop a client that does not take them in time."""
        super().pause_writing()
        after_s = longest_wait_s(self.stall_timeout_s) + _STALL_GRACE_S
        self._stall = self.loop.call_later(after_s, self.transport.abort)

    def resume_writing(self) -> None:
        """Note that the client has taken all bytes."""
        super().resume_writing()
        self._cancel_stall()

    def _cancel_stall(self) -> None:
        if self._stall is not None:
            self._stall.cancel()
            self._stall = None

    def handle_websocket_upgrade(self, event: h11.Request) -> None:
        """Upgrade to a WebSocket, unless the connection is beyond the limit."""
        if self in self.open.probe_only:
            self._refuse(self._too_many())
            return
        self.transport.set_write_buffer_limits()
        super().handle_websocket_upgrade(event)

    def _restrict_to_probes(self) -> None:
        waiting = self.open.probe_only
        application = self.app
        self.header_timeout_s = min(self.header_timeout_s, _PROBE_TIMEOUT_S)

        async def probes_only(scope: Scope, receive: Receive, send: Send) -> None:
            async def send_and_close(message: Message) -> None:
                if message["type"] == "http.response.start":
                    MutableHeaders(scope=message)["connection"] = "close"
                await send(message)

            respond: Any = application if scope["path"] in PROBES else self._too_many()
            await respond(scope, receive, send_and_close)

        self.app = probes_only
        waiting.append(self)
        if len(waiting) > _PROBE_CONNECTIONS:
            waiting.popleft()._refuse_if_idle()

    def _refuse_if_idle(self) -> None:
        if self.conn.our_state is h11.IDLE and not self.transport.is_closing():
            self._refuse(self._too_many())

    def _too_many(self) -> Response:
        """Return the error response for a connection beyond the limit."""
        error = self.open.too_many()
        log.warning("refused %s: %s", self.client, error.message)
        return speech_error_response(error)

    def _update_timeout(self) -> None:
        """Start the timeout if the next request head is not complete, else cancel it."""
        answered = self.conn.our_state is h11.DONE and self.conn.their_state is h11.SEND_BODY
        if self.conn.their_state is not h11.IDLE and not answered:
            self._cancel_timeout()
        elif self._timeout is None:
            self._timeout = self.loop.call_later(self.header_timeout_s, self._time_out)

    def _cancel_timeout(self) -> None:
        if self._timeout is not None:
            self._timeout.cancel()
            self._timeout = None

    def _time_out(self) -> None:
        if self.transport.is_closing():
            return
        if self in self.open.probe_only:
            self._refuse_if_idle()
            return
        sent, _ = self.conn.trailing_data
        if self.conn.our_state is not h11.IDLE or not sent:
            self.transport.close()  # answered, or a browser's preconnection
            return
        log.warning("closed %s: timeout while waiting for the request head", self.client)
        message = f"the headers took longer than {self.header_timeout_s:g} s"
        self._refuse(error_response(408, message, code="header_timeout"))

    def _refuse(self, response: Response) -> None:
        """Send an error response outside the usual request cycle, and close."""
        head = h11.Response(
            status_code=response.status_code,
            headers=[*response.raw_headers, (b"connection", b"close")],
            reason=HTTPStatus(response.status_code).phrase,
        )
        for event in (head, h11.Data(data=bytes(response.body)), h11.EndOfMessage()):
            self.transport.write(self.conn.send(event) or b"")
        self.transport.close()


def connection_class(
    header_timeout_s: float, stall_timeout_s: float, connections: OpenConnections
) -> type[BoundedConnection]:
    """Return a subclass of `BoundedConnection` for a server, with its limits as attributes."""
    bounds = {
        "header_timeout_s": header_timeout_s,
        "stall_timeout_s": stall_timeout_s,
        "open": connections,
    }
    return type("BoundedConnection", (BoundedConnection,), bounds)


class BoundedWebSocket(WebSocketsSansIOProtocol):
    """A WebSocket with backpressure on reading, which drops clients that do not respond."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Limit the size of reads."""
        super().connection_made(transport)
        limit_read_size(transport)

    def data_received(self, data: bytes) -> None:
        """Parse received bytes; if the handshake is invalid, send the error and close.

        uvicorn does neither. The library limits the length of header lines itself.
        """
        super().data_received(data)
        if self.conn.handshake_exc is not None and not self.handshake_initiated:
            self.transport.write(b"".join(self.conn.data_to_send()))
            self.transport.close()

    async def send(self, message: ASGISendEvent) -> None:
        """Send a message; a handshake that was refused is complete, which uvicorn forgets."""
        await super().send(message)
        if message["type"] == "websocket.http.response.body" and not message.get("more_body"):
            self.handshake_complete = True

    def pause_writing(self) -> None:
        """Stop reading while the client does not read."""
        super().pause_writing()
        self.transport.pause_reading()

    def resume_writing(self) -> None:
        """Resume reading, unless messages for the application are queued."""
        super().resume_writing()
        if not self.read_paused and not self.transport.is_closing():
            self.transport.resume_reading()

    async def receive(self) -> ASGIReceiveEvent:
        """Return the next event; resume reading once the queue is empty and the client reads."""
        message = await self.queue.get()
        if self.read_paused and self.queue.empty():
            self.read_paused = False
            if self.writable.is_set():
                self.transport.resume_reading()
        return message

    def keepalive_timeout(self) -> None:
        """Drop a client that does not answer pings, without waiting for unsent data."""
        super().keepalive_timeout()
        self.transport.abort()

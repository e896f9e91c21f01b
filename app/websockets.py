"""A WebSocket protocol that stops reading from a client that does not read.

uvicorn applies backpressure to what the application sends, but answers pings at once and keeps
reading: a client that sends pings and reads nothing would fill memory with pongs.
"""

import asyncio

from uvicorn._types import ASGIReceiveEvent, ASGISendEvent
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

READ_BYTES = 8192
"""Size of one read; a larger one may hold thousands of frames and block the event loop."""


def limit_read_size(transport: asyncio.BaseTransport) -> None:
    """Limit the size of a transport's reads; those of asyncio's selector loop are 256 KiB."""
    if hasattr(transport, "max_size"):
        transport.max_size = READ_BYTES


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

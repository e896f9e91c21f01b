"""A WebSocket whose client must read: what is answered to pings and messages does not pile up.

uvicorn waits for the client where the application sends, but answers a ping at once and goes on
reading: whoever sends pings and reads nothing fills the server's memory with pongs.
"""

import asyncio

from uvicorn._types import ASGIReceiveEvent
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

READ_BYTES = 8192
"""What is taken from a connection at a time: thousands of frames would hold up all others."""


def read_little(transport: asyncio.BaseTransport) -> None:
    """Let a transport read little at a time; those of asyncio's selectors take 256 KiB."""
    if hasattr(transport, "max_size"):
        transport.max_size = READ_BYTES


class BoundedWebSocket(WebSocketsSansIOProtocol):
    """Reads nothing from a client that takes nothing, and lets go of it for good."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin to read."""
        super().connection_made(transport)
        read_little(transport)

    def data_received(self, data: bytes) -> None:
        """Take what came; of a handshake that is refused, send why and close, as uvicorn does not.

        The library has bounds of its own for the lines of a head.
        """
        super().data_received(data)
        if self.conn.handshake_exc is not None and not self.handshake_initiated:
            self.transport.write(b"".join(self.conn.data_to_send()))
            self.transport.close()

    def pause_writing(self) -> None:
        """Read no more, for the client does not."""
        super().pause_writing()
        self.transport.pause_reading()

    def resume_writing(self) -> None:
        """Read on, unless the application has messages to see to."""
        super().resume_writing()
        if not self.read_paused and not self.transport.is_closing():
            self.transport.resume_reading()

    async def receive(self) -> ASGIReceiveEvent:
        """Return what came, and read on once all of it is taken and the client reads, too."""
        message = await self.queue.get()
        if self.read_paused and self.queue.empty():
            self.read_paused = False
            if self.writable.is_set():
                self.transport.resume_reading()
        return message

    def keepalive_timeout(self) -> None:
        """Drop a client that answers no ping: what it does not take would never be sent."""
        super().keepalive_timeout()
        self.transport.abort()

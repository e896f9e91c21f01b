"""A client that requests speech and does not read the response."""

from __future__ import annotations

import asyncio
import json
import socket
from urllib.parse import urlsplit

RECEIVE_BYTES = 4096
"""Size of its receive buffer; the rest of the response must wait at the server."""


class StalledClient:
    """A connection whose response is not read."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection

    @classmethod
    async def begin(cls, url: str, text: str) -> StalledClient:
        """Connect and send a streamed request."""
        parts = urlsplit(url)
        body = json.dumps({"input": text, "response_format": "pcm", "stream": True}).encode()
        head = (
            f"POST /v1/audio/speech HTTP/1.1\r\nHost: {parts.netloc}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        connection = socket.socket()
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BYTES)
        connection.setblocking(False)
        loop = asyncio.get_running_loop()
        await loop.sock_connect(connection, (parts.hostname, parts.port))
        await loop.sock_sendall(connection, head.encode() + body)
        return cls(connection)

    async def end(self, timeout_s: float = 30.0) -> str:
        """Read the response; return `whole`, `cut off`, or `STILL CONNECTED` after a timeout."""
        got = bytearray()
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(timeout_s):
                while part := await loop.sock_recv(self._connection, 65_536):
                    got += part
                    if got.endswith(b"\r\n0\r\n\r\n"):
                        return "whole"
        except TimeoutError:
            return "STILL CONNECTED"
        except ConnectionResetError:
            pass
        finally:
            self._connection.close()
        return "cut off"

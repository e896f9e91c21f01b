"""A client that asks for a speech and reads none of it."""

from __future__ import annotations

import asyncio
import json
import socket
from urllib.parse import urlsplit

RECEIVE_BYTES = 4096
"""What its system takes in for it; the rest must wait at the server."""


class Stalled:
    """A connection over which an answer comes that nobody reads."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection

    @classmethod
    async def begin(cls, url: str, text: str) -> Stalled:
        """Ask a server for a text, streamed."""
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
        """Read what there is; return `whole` or `cut off`, or that the server never closed it."""
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

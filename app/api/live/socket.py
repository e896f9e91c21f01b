"""Sending over one WebSocket, with a timeout for clients that do not read."""

import asyncio
from contextlib import suppress

from pydantic import BaseModel
from starlette.websockets import WebSocket, WebSocketDisconnect


class ClientGone(Exception):
    """The client has disconnected or does not read."""


class LiveSocket:
    """Sends messages and audio, one at a time."""

    def __init__(self, websocket: WebSocket, stall_timeout_s: float) -> None:
        """Initialise with an accepted WebSocket.

        Args:
            websocket: The WebSocket.
            stall_timeout_s: Seconds that a send may wait for the client to read.
        """
        self._websocket = websocket
        self._stall_timeout_s = stall_timeout_s
        self._lock = asyncio.Lock()

    async def message(self, message: BaseModel) -> None:
        """Send a message as JSON.

        Raises:
            ClientGone: The client has disconnected or does not read.
        """
        await self.text(message.model_dump_json())

    async def text(self, text: str) -> None:
        """Send a text frame.

        Raises:
            ClientGone: The client has disconnected or does not read.
        """
        await self._send({"type": "websocket.send", "text": text})

    async def audio(self, pcm: bytes) -> None:
        """Send a binary frame.

        Raises:
            ClientGone: The client has disconnected or does not read.
        """
        await self._send({"type": "websocket.send", "bytes": pcm})

    async def close(self, code: int, reason: str) -> None:
        """Close the connection, if it is open."""
        with suppress(ClientGone):
            await self._send({"type": "websocket.close", "code": code, "reason": reason})

    async def _send(self, message: dict[str, object]) -> None:
        try:
            async with asyncio.timeout(self._stall_timeout_s), self._lock:
                await self._websocket.send(message)
        except TimeoutError:
            raise ClientGone("it does not read") from None
        except (WebSocketDisconnect, RuntimeError, OSError) as error:  # it has disconnected
            raise ClientGone("it has disconnected") from error

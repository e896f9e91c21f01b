"""Sending to one client, with a timeout for clients that do not read."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

from pydantic import BaseModel
from starlette.websockets import WebSocket, WebSocketDisconnect

from app.api.gate.limits import pace


class ClientGone(Exception):
    """The client has disconnected or does not read."""


class LiveSocket:
    """Sends one message at a time.

    Args:
        write: Returns once the client may be sent more: that of an accepted WebSocket, or of
            another connection.
        stall_timeout_s: Seconds that it may take.
    """

    def __init__(self, write: Callable[[Any], Awaitable[None]], stall_timeout_s: float) -> None:
        self._write = write
        self._stall_timeout_s = stall_timeout_s
        self._lock = asyncio.Lock()

    async def message(self, message: BaseModel) -> None:
        """Send a WebSocket message as JSON."""
        await self.text(message.model_dump_json())

    async def text(self, text: str) -> None:
        """Send a text frame."""
        await self.send({"type": "websocket.send", "text": text})

    async def audio(self, pcm: bytes) -> None:
        """Send a binary frame."""
        await self.send({"type": "websocket.send", "bytes": pcm})

    async def close(self, code: int, reason: str) -> None:
        """Close the WebSocket, if it is open."""
        with suppress(ClientGone):
            await self.send({"type": "websocket.close", "code": code, "reason": reason})

    async def send(self, message: Any) -> None:
        """Send a message as the connection takes it.

        Raises:
            ClientGone: The client has disconnected or does not read.
        """
        try:
            async with asyncio.timeout(self._stall_timeout_s), self._lock:
                await self._write(message)
        except TimeoutError:
            raise ClientGone("it does not read") from None
        except (WebSocketDisconnect, RuntimeError, OSError) as error:  # it has disconnected
            raise ClientGone("it has disconnected") from error


async def received(websocket: WebSocket) -> str | bytes | None:
    """Return the next message of a WebSocket, paced; None once the client has disconnected."""
    message = await websocket.receive()
    if message["type"] == "websocket.disconnect":
        return None
    text: str | None = message.get("text")
    content: str | bytes = message.get("bytes") or b"" if text is None else text
    await pace(len(content))
    return content

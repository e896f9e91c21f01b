"""The server's end of one WebSocket: what is sent, one at a time, to a client that must read."""

import asyncio
from contextlib import suppress

from pydantic import BaseModel
from starlette.websockets import WebSocket, WebSocketDisconnect


class ClientGone(Exception):
    """The client left, or takes nothing."""


class LiveSocket:
    """Sends messages and sound."""

    def __init__(self, websocket: WebSocket, stall_timeout_s: float) -> None:
        """Take an accepted WebSocket.

        Args:
            websocket: Of the client.
            stall_timeout_s: How long one send may wait for the client to read.
        """
        self._websocket = websocket
        self._stall_timeout_s = stall_timeout_s
        self._one = asyncio.Lock()

    async def message(self, message: BaseModel) -> None:
        """Send a message.

        Raises:
            ClientGone: It cannot be sent.
        """
        await self.text(message.model_dump_json())

    async def text(self, text: str) -> None:
        """Send a message that is JSON already.

        Raises:
            ClientGone: It cannot be sent.
        """
        await self._send({"type": "websocket.send", "text": text})

    async def sound(self, pcm: bytes) -> None:
        """Send a binary frame.

        Raises:
            ClientGone: It cannot be sent.
        """
        await self._send({"type": "websocket.send", "bytes": pcm})

    async def close(self, code: int, reason: str) -> None:
        """Say goodbye, if the client still listens."""
        with suppress(ClientGone):
            await self._send({"type": "websocket.close", "code": code, "reason": reason})

    async def _send(self, message: dict[str, object]) -> None:
        try:
            async with asyncio.timeout(self._stall_timeout_s), self._one:
                await self._websocket.send(message)
        except TimeoutError:
            raise ClientGone("it takes nothing") from None
        except (WebSocketDisconnect, RuntimeError, OSError) as error:  # it has left meanwhile
            raise ClientGone("it has left") from error

"""Answers sent in pieces, each within the time that a client may read nothing.

A body that is handed to the server at once lies in the memory of the connection for as long as the
client likes, and nobody knows when it is sent. Here a request ends when its answer was taken.
"""

import asyncio
import ctypes
import logging

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.engine.errors import ReaderStalled

PIECE_BYTES = 65_536
"""Longest piece: with the time limit, also the least rate at which an answer must be read."""

LARGE_BYTES = 2**22
"""Answers from this size on leave memory that the C library keeps unless it is asked."""

log = logging.getLogger(__name__)


class DeliveryMiddleware:
    """ASGI middleware that divides bodies and raises `ReaderStalled` from `send`.

    Args:
        app: The application.
        stall_timeout_s: Seconds a client may take to read a piece.
    """

    def __init__(self, app: ASGIApp, *, stall_timeout_s: float) -> None:
        self._app, self._stall_timeout_s = app, stall_timeout_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        pieces = _Pieces(send, self._stall_timeout_s)
        try:
            await self._app(scope, receive, pieces.send)
        except Exception:
            if not pieces.stalled:
                raise
            log.warning("%s: cut off, as the client does not read", scope["path"][:200])
        finally:
            if pieces.bytes >= LARGE_BYTES:
                asyncio.get_running_loop().run_in_executor(None, give_back_memory)


class _Pieces:
    """An ASGI `send` that sends bodies in pieces, and raises `ReaderStalled`."""

    def __init__(self, send: Send, stall_timeout_s: float) -> None:
        self._send, self._stall_timeout_s = send, stall_timeout_s
        self.bytes, self.stalled = 0, False

    async def send(self, message: Message) -> None:
        """Send a message; a body of several pieces was taken by the client when this returns."""
        body = memoryview(message.get("body", b""))
        if len(body) > PIECE_BYTES:
            for start in range(0, len(body), PIECE_BYTES):
                piece = bytes(body[start : start + PIECE_BYTES])
                await self._one({**message, "body": piece, "more_body": True})
            message = {**message, "body": b""}  # which the server sends once the last piece is gone
        await self._one(message)

    async def _one(self, message: Message) -> None:
        try:
            async with asyncio.timeout(self._stall_timeout_s):
                await self._send(message)
        except TimeoutError:
            self.stalled = True
            raise ReaderStalled(
                f"the client read nothing for {self._stall_timeout_s:g} s"
            ) from None
        self.bytes += len(message.get("body", b""))


def give_back_memory() -> None:
    """Return freed memory to the system, where the C library can: glibc keeps much of it."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)

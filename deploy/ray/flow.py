"""Flow control between a replica and its client, across Ray's proxy, which buffers without bound.

The proxy reports how many bytes the client has taken, as messages among the client's own, and the
replica's `send` waits while more than a window of bytes is in flight. So a client that does not
read pauses its job, and the stall timeout cancels it, as in one process.
"""

import asyncio
from typing import Any, Final

from starlette.types import ASGIApp, Message, Receive, Scope, Send

SENT: Final = "valle.sent"
"""Type of the proxy's message to the replica; `bytes` were sent to the client so far."""

ASKED: Final = b"x-valle-flow"
"""Header by which the proxy announces these messages."""

WINDOW_BYTES: Final = 131_072
"""What may be in flight between a replica and a client: 2.7 s of PCM."""

_STEP_BYTES: Final = WINDOW_BYTES // 8
_KINDS: Final = frozenset({"http", "websocket"})


def size_of(message: Message) -> int:
    """Return the bytes of a message that belong to a body."""
    if message["type"] == "http.response.body":
        return len(message.get("body", b""))
    if message["type"] == "websocket.send":
        return len(message.get("bytes") or message.get("text") or "")
    return 0


class CountedSend:
    """ASGI middleware of the proxy: reports to the replica what the client has taken."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request."""
        if scope["type"] not in _KINDS:
            await self._app(scope, receive, send)
            return
        sent = reported = 0
        unreported = asyncio.Event()
        receiving: asyncio.Future[Message] | None = None

        async def receive_or_report() -> Message:
            nonlocal receiving, reported
            receiving = receiving or asyncio.ensure_future(receive())
            reporting: asyncio.Future[Any] = asyncio.ensure_future(unreported.wait())
            try:
                await asyncio.wait([receiving, reporting], return_when=asyncio.FIRST_COMPLETED)
            finally:
                reporting.cancel()
            if receiving.done():
                message, receiving = receiving.result(), None
                return message
            unreported.clear()
            reported = sent
            return {"type": SENT, "bytes": sent}

        async def counted_send(message: Message) -> None:
            nonlocal sent
            await send(message)  # returns when the connection has taken it
            sent += size_of(message)
            if sent - reported >= _STEP_BYTES:
                unreported.set()

        headers = [one for one in scope["headers"] if one[0] != ASKED]
        scope = {**scope, "headers": [*headers, (ASKED, b"1")]}
        try:
            await self._app(scope, receive_or_report, counted_send)
        finally:
            if receiving is not None:
                receiving.cancel()


class BoundedSend:
    """ASGI middleware of a replica: waits while too much is in flight to the client."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request; without a proxy that reports, nothing changes."""
        if scope["type"] not in _KINDS or all(name != ASKED for name, _ in scope["headers"]):
            await self._app(scope, receive, send)
            return
        sent = taken = 0
        room = asyncio.Event()
        messages: asyncio.Queue[Message | Exception] = asyncio.Queue()

        async def sort_messages() -> Message | Exception:
            """Separate reports from the client's messages; return its last one."""
            nonlocal taken
            while True:
                message: Message | Exception
                try:
                    message = await receive()
                except Exception as error:
                    message = error
                if isinstance(message, Exception) or message["type"] != SENT:
                    messages.put_nowait(message)
                else:
                    taken = message["bytes"]
                room.set()
                if isinstance(message, Exception) or message["type"].endswith(".disconnect"):
                    return message

        async def client_receive() -> Message:
            ended = sorting.done() and messages.empty()
            message = sorting.result() if ended else await messages.get()
            if isinstance(message, Exception):
                raise message
            return message

        async def bounded_send(message: Message) -> None:
            nonlocal sent
            size = size_of(message)
            while size and sent - taken > WINDOW_BYTES and not sorting.done():
                room.clear()
                await room.wait()
            sent += size
            await send(message)

        sorting = asyncio.create_task(sort_messages())
        try:
            await self._app(scope, client_receive, bounded_send)
        finally:
            sorting.cancel()

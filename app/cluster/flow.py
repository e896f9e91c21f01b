"""Flow control between a replica and the client, across Ray's proxy.

Ray's proxy takes whatever a replica sends, and keeps it until the client reads: a client that reads
nothing would have its whole speech generated and kept. Here the proxy tells the replica how many
bytes it has sent on, as messages beside the client's own, and the replica's `send` waits while more
than a window of bytes is under way. So it waits as it does for a slow client of one process, and
what follows from that is the same: the job pauses, and is cancelled after the stall timeout.
"""

import asyncio
from collections import deque
from typing import Final

from starlette.types import ASGIApp, Message, Receive, Scope, Send

SENT: Final = "valle.sent"
"""Type of the message of the proxy to the replica: `bytes` of bodies were sent on, in all."""

ASKED: Final = b"x-valle-flow"
"""Header by which the proxy tells the replica that it counts."""

WINDOW_BYTES: Final = 131_072
"""What may be under way between a replica and a client: 2.7 s of PCM."""

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
    """ASGI middleware of the proxy: counts what the client has taken, and tells the replica."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request."""
        if scope["type"] not in _KINDS:
            await self._app(scope, receive, send)
            return
        flow = _Counted(receive, send)
        headers = [one for one in scope["headers"] if one[0] != ASKED]
        try:
            await self._app(
                {**scope, "headers": [*headers, (ASKED, b"1")]}, flow.receive, flow.send
            )
        finally:
            flow.close()


class _Counted:
    """One request at the proxy."""

    def __init__(self, receive: Receive, send: Send) -> None:
        self._receive, self._send = receive, send
        self._sent = self._told = 0
        self._more = asyncio.Event()
        self._receiving: asyncio.Task[Message] | None = None

    async def receive(self) -> Message:
        """Return the client's next message, or a count."""
        if self._receiving is None:
            self._receiving = asyncio.ensure_future(self._receive())
        telling = asyncio.ensure_future(self._more.wait())
        try:
            await asyncio.wait({self._receiving, telling}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            telling.cancel()
        if self._receiving.done():
            message, self._receiving = self._receiving.result(), None
            return message
        self._more.clear()
        self._told = self._sent
        return {"type": SENT, "bytes": self._sent}

    async def send(self, message: Message) -> None:
        """Send a message on; returns when the connection has taken it."""
        await self._send(message)
        self._sent += size_of(message)
        if self._sent - self._told >= _STEP_BYTES:
            self._more.set()

    def close(self) -> None:
        if self._receiving is not None:
            self._receiving.cancel()


class BoundedSend:
    """ASGI middleware of a replica: waits while too much is under way to the client."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request; without a proxy that counts, nothing is done."""
        if scope["type"] not in _KINDS or all(name != ASKED for name, _ in scope["headers"]):
            await self._app(scope, receive, send)
            return
        flow = _Bounded(receive, send)
        try:
            await self._app(scope, flow.receive, flow.send)
        finally:
            flow.close()


class _Bounded:
    """One request at a replica."""

    def __init__(self, receive: Receive, send: Send) -> None:
        self._receive, self._send = receive, send
        self._under_way = 0
        self._sent = 0
        self._messages: deque[Message] = deque()
        self._changed = asyncio.Event()
        self._error: BaseException | None = None
        self._pumping = asyncio.create_task(self._pump())

    async def _pump(self) -> None:
        """Sort counts from the client's messages, to its last one."""
        while True:
            try:
                message = await self._receive()
            except Exception as error:
                self._error = error
                self._changed.set()
                return
            if message["type"] == SENT:
                self._under_way = self._sent - message["bytes"]
            else:
                self._messages.append(message)
            self._changed.set()
            if message["type"].endswith(".disconnect"):
                self._under_way = 0
                self._last = message
                return

    async def receive(self) -> Message:
        """Return the client's next message."""
        while not self._messages:
            if self._pumping.done():
                if self._error is not None:
                    raise self._error
                return self._last
            self._changed.clear()
            await self._changed.wait()
        return self._messages.popleft()

    async def send(self, message: Message) -> None:
        """Send a message, once little enough is under way."""
        size = size_of(message)
        while size and self._under_way > WINDOW_BYTES and not self._pumping.done():
            waiting = self._changed
            waiting.clear()
            await waiting.wait()
        self._sent += size
        self._under_way += size
        await self._send(message)

    def close(self) -> None:
        self._pumping.cancel()

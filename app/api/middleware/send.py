"""The answer on its way: what was sent of it, and whether its client reads."""

from collections.abc import Mapping
from typing import Any, Final

from starlette.types import Message, Send

from app.api.errors import FIRST_ERROR
from app.api.middleware.pace import pace_refusal
from app.api.middleware.readers import PIECE_BYTES, Patience
from app.api.middleware.request_ids import ID_HEADER
from app.engine.errors import ReaderStalled

_SWITCHING_PROTOCOLS: Final = 101


class MonitoredSend:
    """An ASGI `send` that adds the request's id, notes what was sent, and waits for the client.

    A body that is handed to the server at once lies in the memory of the connection for as long as
    the client likes, and nobody knows when it is sent. Here a request ends when its answer was
    taken: large bodies are sent in pieces, and `ReaderStalled` is raised if the client reads too
    little (`Patience`). Errors in answer to long bodies are sent after a pause, see `pace_refusal`.
    ``state`` of the request has its `id` and, once it is admitted over HTTP, its `body`.
    """

    def __init__(self, send: Send, state: Mapping[str, Any], stall_timeout_s: float) -> None:
        self._send = send
        self._state = state
        self._patience = Patience(stall_timeout_s)
        self.status: int | None = None  # of HTTP, or 101 of an accepted WebSocket
        self.bytes = 0  # of the body or the messages sent so far
        self.started = False  # whether the head was sent
        self.whole = False  # whether all of the body was
        self.stalled = False  # whether `ReaderStalled` was raised

    async def send(self, message: Message) -> None:
        """Send a message; a body of several pieces was taken by the client when this returns."""
        kind = message["type"].removeprefix("websocket.")
        if kind in {"http.response.start", "accept"}:
            self.started = True
            own = (ID_HEADER.encode(), self._state["id"].encode())
            message["headers"] = [*message.get("headers", ()), own]
        if "body" in self._state and message.get("status", 0) >= FIRST_ERROR:
            await pace_refusal(self._state["body"].size_bytes)
        body = memoryview(message.get("body", b""))
        if len(body) > PIECE_BYTES:
            for start in range(0, len(body), PIECE_BYTES):
                piece = bytes(body[start : start + PIECE_BYTES])
                await self._one({**message, "body": piece, "more_body": True}, kind)
            message = {**message, "body": b""}  # which the server sends once the last piece is gone
        await self._one(message, kind)

    async def _one(self, message: Message, kind: str) -> None:
        """Send a message, or raise ReaderStalled over HTTP, and note it."""
        sending = self._send(message)
        try:
            if "body" in self._state:
                await self._patience.send(sending, len(message.get("body", b"")))
            else:
                await sending
        except TimeoutError:
            self.stalled = True
            raise ReaderStalled("the client read too little for too long") from None
        match kind:
            case "http.response.start":
                self.status = message["status"]
            case "http.response.body":
                self.bytes += len(message.get("body", b""))
                self.whole = not message.get("more_body", False)
            case "accept":
                self.status = _SWITCHING_PROTOCOLS
                self.whole = True
            case "send":
                self.bytes += len(message.get("bytes") or message.get("text") or "")

"""Asks again where a replica died before it answered.

Ray's proxy asks another replica while none has accepted a request. Where one had accepted it and
died with no byte answered, the client would get a 500 that says nothing. Nobody has heard any of
such a speech, so another replica speaks it.
"""

import logging
from typing import Final

from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

log = logging.getLogger(__name__)

ATTEMPTS: Final = 2
"""A request that ends every replica that takes it ends no third one."""

KEPT_BYTES: Final = 1_048_576
"""Of a body, to send it again; requests for speech are shorter."""

_READING: Final = frozenset({"GET", "HEAD"})
_ANSWERS: Final = frozenset({
    "http.response.start",
    "websocket.accept",
    "websocket.close",
    "websocket.http.response.start",
})


class RetryUnanswered:
    """ASGI middleware of the proxy: asks again once for what was not answered, then refuses it.

    Asked again is what changes nothing: reading, requests in JSON, and WebSockets that were not
    accepted. Another, as an upload, may have been done by the replica that died. What is refused
    gets the status 503 with the code `replica_lost`.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request."""
        if scope["type"] not in {"http", "websocket"}:
            await self._app(scope, receive, send)
            return
        request = _Request(receive, send)
        for _ in range(ATTEMPTS if _changes_nothing(scope) else 1):
            # Ray adds to the headers and sets the path.
            await self._app(
                {**scope, "headers": list(scope["headers"])}, request.receive, request.send
            )
            if request.over:
                return
            if not request.begin_again():
                break
        await _refuse(scope, receive, send)


class _Request:
    """A request whose messages can be received again until it is answered.

    Attributes:
        over: Whether it is answered, or the client has left.
    """

    def __init__(self, receive: Receive, send: Send) -> None:
        self._receive, self._send = receive, send
        self._kept: list[Message] = []
        self._kept_bytes = self._next = 0
        self.over = False

    def begin_again(self) -> bool:
        """Receive from the first message on; return False if that is no longer kept."""
        self._next = 0
        return self._kept_bytes <= KEPT_BYTES

    async def receive(self) -> Message:
        """Return the next message: one that is kept, or the client's."""
        if self._next < len(self._kept):
            self._next += 1
            return self._kept[self._next - 1]
        message = await self._receive()
        if message["type"].endswith(".disconnect"):
            self.over = True
        elif not self.over:
            self._kept_bytes += len(message.get("body", b""))
            if self._kept_bytes <= KEPT_BYTES:
                self._kept.append(message)
                self._next = len(self._kept)
            else:
                self._kept.clear()
                self._next = 0
        return message

    async def send(self, message: Message) -> None:
        """Send a message; the first of an answer ends what can be asked again."""
        if message["type"] in _ANSWERS:
            self.over = True
            self._kept.clear()
            self._next = 0
        await self._send(message)


def _changes_nothing(scope: Scope) -> bool:
    if scope["type"] == "websocket" or scope["method"] in _READING:
        return True
    kinds = [value for name, value in scope["headers"] if name == b"content-type"]
    return scope["method"] == "POST" and all(
        kind.partition(b";")[0].strip().lower() == b"application/json" for kind in kinds
    )


async def _refuse(scope: Scope, receive: Receive, send: Send) -> None:
    log.warning("lost with its replica: %s", scope["path"])
    # As app.api.errors has it, which loads the service.
    error = {
        "message": "the replica ended before it answered",
        "type": "server_error",
        "param": None,
        "code": "replica_lost",
    }
    await JSONResponse({"error": error}, 503, {"Retry-After": "1"})(scope, receive, send)

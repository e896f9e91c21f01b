"""Middlewares of Ray's proxy, named in `RAY_SERVE_HTTP_PROXY_CALLBACK_IMPORT_PATH`.

Loads neither torch nor the service.
"""

import logging
from typing import Final

from starlette.middleware import Middleware
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from deploy.ray.flow import CountedSend

log = logging.getLogger(__name__)

ATTEMPTS: Final = 2
"""A request that ends every replica that takes it ends no third one."""

KEPT_BYTES: Final = 1_048_576
"""Of a body, to send it again; requests for speech are shorter."""

_ID: Final = b"x-request-id"
_STARTS: Final = frozenset({
    "http.response.start",
    "websocket.accept",
    "websocket.http.response.start",
})


def middlewares() -> list[Middleware]:
    """Return the middlewares of Ray's proxy, the innermost first."""
    return [Middleware(OneRequestId), Middleware(CountedSend), Middleware(RetryUnanswered)]


class OneRequestId:
    """ASGI middleware that removes the request id that Ray adds behind that of the service."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request."""

        async def send_one(message: Message) -> None:
            if message["type"] in _STARTS:
                headers = [(bytes(name), bytes(value)) for name, value in message["headers"]]
                ids = [one for one in headers if one[0].lower() == _ID]
                others = [one for one in headers if one[0].lower() != _ID]
                message = {**message, "headers": [*others, *ids[:1]]}
            await send(message)

        await self._app(scope, receive, send_one)


class RetryUnanswered:
    """ASGI middleware that sends a request to another replica if one died before it answered.

    Ray does so only while no replica has accepted the request. Retried once is what changes
    nothing: reading, requests in JSON, and WebSockets that were not accepted. Other requests, such
    as uploads, may have been carried out. They get status 503 with the code `replica_lost`.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request."""
        if scope["type"] not in {"http", "websocket"}:
            await self._app(scope, receive, send)
            return
        kept: list[Message] = []
        kept_bytes = 0
        over = False  # answered, or the client has disconnected

        def attempt() -> Receive:
            """Return a `receive` that begins with the request's first message."""
            again = iter([*kept])

            async def receive_again() -> Message:
                nonlocal kept_bytes, over
                if (message := next(again, None)) is not None:
                    return message
                message = await receive()
                over = over or message["type"].endswith(".disconnect")
                kept_bytes += len(message.get("body", b""))
                if over or kept_bytes > KEPT_BYTES:
                    kept.clear()
                else:
                    kept.append(message)
                return message

            return receive_again

        async def send_answer(message: Message) -> None:
            nonlocal over
            over = over or message["type"] in _STARTS or message["type"] == "websocket.close"
            await send(message)

        for _ in range(ATTEMPTS if _changes_nothing(scope) else 1):
            # A copy, as Ray adds to the headers and sets the path.
            once = {**scope, "headers": list(scope["headers"])}
            await self._app(once, attempt(), send_answer)
            if over:
                return
            if kept_bytes > KEPT_BYTES:
                break
        log.warning("lost with its replica: %s", scope["path"])
        # As `app.api.errors` has it, which would load the service.
        error = {
            "message": "the replica ended before it answered",
            "type": "server_error",
            "param": None,
            "code": "replica_lost",
        }
        await JSONResponse({"error": error}, 503, {"Retry-After": "1"})(scope, receive, send)


def _changes_nothing(scope: Scope) -> bool:
    if scope["type"] == "websocket" or scope["method"] in {"GET", "HEAD"}:
        return True
    kinds = [value for name, value in scope["headers"] if name == b"content-type"]
    return scope["method"] == "POST" and all(
        kind.partition(b";")[0].strip().lower() == b"application/json" for kind in kinds
    )

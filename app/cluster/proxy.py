"""What stands before the service in Ray's proxy: `RAY_SERVE_HTTP_PROXY_CALLBACK_IMPORT_PATH`.

Loads neither torch nor the service.
"""

from starlette.middleware import Middleware
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.cluster.flow import CountedSend
from app.cluster.retry import RetryUnanswered

_ID = b"x-request-id"
_STARTS = frozenset({
    "http.response.start",
    "websocket.accept",
    "websocket.http.response.start",
})


class OneRequestId:
    """ASGI middleware that keeps the id of the service, where Ray puts its own behind it."""

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


def middlewares() -> list[Middleware]:
    """Return the middlewares of Ray's proxy, the innermost first."""
    return [Middleware(OneRequestId), Middleware(CountedSend), Middleware(RetryUnanswered)]

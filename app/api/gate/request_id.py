"""A name for every request, on every answer and in the log; and the last net for our mistakes."""

import logging
import re
from uuid import uuid4

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.api.errors import error_response
from app.logs import REQUEST_ID

HEADER = "x-request-id"

_THEIRS = r"(?:[A-Za-z0-9._:/+=@-]{1,200})?"
_OPENINGS = frozenset({
    "http.response.start",
    "websocket.accept",
    "websocket.http.response.start",
})

log = logging.getLogger(__name__)


class RequestIdMiddleware:
    """Names each request in `request.state.id`; an exception nobody caught becomes a 500.

    The name is ours alone: a caller's could be anybody's, and a speech is fetched by its id. One
    that a caller or a proxy sends stands beside ours in the log: `request.state.client_id` is it,
    empty where there is none, None where it is no name.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on."""
        if scope["type"] not in {"http", "websocket"}:
            await self._app(scope, receive, send)
            return
        request_id = uuid4().hex
        theirs = Headers(scope=scope).get(HEADER, "")
        client_id = theirs if re.fullmatch(_THEIRS, theirs) else None
        scope.setdefault("state", {}).update(id=request_id, owner="", client_id=client_id)
        REQUEST_ID.set(request_id)
        started = False

        async def send_named(message: Message) -> None:
            nonlocal started
            if message["type"] in _OPENINGS:
                started = True
                message["headers"] = [
                    *message.get("headers", ()),
                    (HEADER.encode(), request_id.encode()),
                ]
            await send(message)

        try:
            await self._app(scope, receive, send_named)
        except Exception:
            log.exception("request %s broke", request_id)
            if started:
                raise
            answer = error_response(500, "this is our mistake; the log says more", code="internal")
            await answer(scope, receive, send_named)

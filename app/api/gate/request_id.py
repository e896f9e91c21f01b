"""Request ids, and a handler of last resort for unexpected exceptions."""

import logging
import re
from uuid import uuid4

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.api.errors import error_response
from app.logs import REQUEST_ID

HEADER = "x-request-id"

_CLIENT_ID = r"(?:[A-Za-z0-9._:/+=@-]{1,200})?"
_START_MESSAGES = frozenset({
    "http.response.start",
    "websocket.accept",
    "websocket.http.response.start",
})

log = logging.getLogger(__name__)


class RequestIdMiddleware:
    """Sets `request.state.id` and `x-request-id`; turns uncaught exceptions into a 500.

    Ids are generated here, as a speech is fetched by its id and a client could choose that of
    another. An id that a client or proxy sends goes to the log and to `request.state.client_id`:
    empty if there is none, None if it is invalid.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request."""
        if scope["type"] not in {"http", "websocket"}:
            await self._app(scope, receive, send)
            return
        request_id = uuid4().hex
        sent_id = Headers(scope=scope).get(HEADER, "")
        client_id = sent_id if re.fullmatch(_CLIENT_ID, sent_id) else None
        scope.setdefault("state", {}).update(id=request_id, owner="", client_id=client_id)
        REQUEST_ID.set(request_id)
        started = False

        async def send_with_id(message: Message) -> None:
            nonlocal started
            if message["type"] in _START_MESSAGES:
                started = True
                message["headers"] = [
                    *message.get("headers", ()),
                    (HEADER.encode(), request_id.encode()),
                ]
            await send(message)

        try:
            await self._app(scope, receive, send_with_id)
        except Exception:
            log.exception("request %s failed", request_id)
            if started:
                raise
            answer = error_response(500, "internal error; the log has the details", code="internal")
            await answer(scope, receive, send_with_id)

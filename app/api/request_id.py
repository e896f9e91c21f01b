"""A name for every request, on every answer and in the log; and the last net for our mistakes."""

import logging
from uuid import uuid4

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.api.errors import error_response

HEADER = "x-request-id"

log = logging.getLogger(__name__)


class RequestIdMiddleware:
    """Names each request in `request.state.id`; an exception nobody caught becomes a 500."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        # Ours alone: a caller's could be anybody's, and a speech is fetched by its id.
        request_id = uuid4().hex
        state = scope.setdefault("state", {})
        state["id"], state["owner"] = request_id, ""
        started = False

        async def send_named(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                message["headers"] = [
                    *message["headers"],
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

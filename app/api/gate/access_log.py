"""One log line and metrics for every completed request."""

import logging
import re
from time import perf_counter
from uuid import uuid4

from starlette.datastructures import Headers
from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.api.errors import CLIENT_CLOSED, error_response
from app.api.gate.admission import address_of
from app.api.http_metrics import HttpMetrics
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
        if (client := scope.get("client")) is not None:
            # A proxy that is trusted to name the client may pass on any text.
            scope["client"] = (str(address_of(client[0]) or ""), client[1])
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


log = logging.getLogger(__name__)

_LONGEST_PATH = 200
_POLLED = frozenset({"/health", "/ready", "/metrics"})
"""Polled routes: logged at level debug unless they fail."""

_FIRST_ERROR = 400
_SWITCHING_PROTOCOLS = 101
_SERVER_ERROR = 500


class AccessLogMiddleware:
    """ASGI middleware that logs and counts each request when it ends."""

    def __init__(self, app: ASGIApp, metrics: HttpMetrics) -> None:
        self._app, self._metrics = app, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request."""
        if scope["type"] not in {"http", "websocket"}:
            await self._app(scope, receive, send)
            return
        monitor = _ResponseMonitor(send)
        began_s = perf_counter()
        try:
            await self._app(scope, receive, monitor.send)
        except Exception:
            monitor.status = monitor.status or _SERVER_ERROR
            raise
        finally:
            self._log(scope, monitor, perf_counter() - began_s)

    def _log(self, scope: Scope, monitor: "_ResponseMonitor", seconds: float) -> None:
        connection = HTTPConnection(scope)
        status = monitor.status or CLIENT_CLOSED
        method = scope.get("method", "WS")
        path, milliseconds = scope["path"][:_LONGEST_PATH], round(1000 * seconds, 1)
        who = {
            "owner": connection.state.owner,
            "client": connection.client.host if connection.client else "",
            "client_request_id": connection.state.client_id,
        }
        route = getattr(scope.get("route"), "path", None)
        self._metrics.count(method, route, status, seconds)
        quiet = route in _POLLED and status < _FIRST_ERROR
        known = "".join(f", {name} {value}" for name, value in who.items() if value)
        cut = "" if monitor.whole else " and cut"
        log.log(
            logging.DEBUG if quiet else logging.INFO,
            "%s %s %d in %.1f ms, %d bytes%s%s",
            *(method, path, status, milliseconds, monitor.bytes, cut, known),
            extra={
                "method": method,
                "path": path,
                "status": status,
                "ms": milliseconds,
                "bytes": monitor.bytes,
                "whole": monitor.whole,
                **who,
            },
        )


class _ResponseMonitor:
    """Records status, size and completeness of a response while it is sent."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self.status: int | None = None
        self.bytes = 0
        self.whole = False

    async def send(self, message: Message) -> None:
        """Forward a message."""
        await self._send(message)
        match message["type"]:
            case "http.response.start" | "websocket.http.response.start":
                self.status = message["status"]
            case "http.response.body" | "websocket.http.response.body":
                self.bytes += len(message.get("body", b""))
                self.whole = not message.get("more_body", False)
            case "websocket.accept":
                self.status, self.whole = _SWITCHING_PROTOCOLS, True
            case "websocket.send":
                self.bytes += len(message.get("bytes") or message.get("text") or "")

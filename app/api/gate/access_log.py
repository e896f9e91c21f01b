"""What is known of every request once it is over: a line in the log, and what is counted."""

import logging
from time import perf_counter

from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.api.errors import CLIENT_CLOSED
from app.api.http_metrics import HttpMetrics

log = logging.getLogger(__name__)

_LONGEST_PATH = 200
_ASKED_BY_MACHINES = frozenset({"/health", "/ready", "/metrics"})
"""Some times a minute, for ever: lines at info would drown all others. Their failures are told."""

_FAILED = 400
_SWITCHED = 101  # a WebSocket that was opened
_BROKEN = 500


class AccessLog:
    """Writes a line and counts, once a request is over."""

    def __init__(self, app: ASGIApp, metrics: HttpMetrics) -> None:
        """Stand before an application.

        Args:
            app: What is behind.
            metrics: Where it is counted.
        """
        self._app, self._metrics = app, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on."""
        if scope["type"] not in {"http", "websocket"}:
            await self._app(scope, receive, send)
            return
        answer = _Answer(send)
        began_s = perf_counter()
        try:
            await self._app(scope, receive, answer.send)
        except Exception:
            answer.status = answer.status or _BROKEN
            raise
        finally:
            self._account(scope, answer, perf_counter() - began_s)

    def _account(self, scope: Scope, answer: "_Answer", seconds: float) -> None:
        connection = HTTPConnection(scope)
        status = answer.status or CLIENT_CLOSED
        method = scope.get("method", "WS")
        path, milliseconds = scope["path"][:_LONGEST_PATH], round(1000 * seconds, 1)
        who = {
            "owner": connection.state.owner,
            "client": connection.client.host if connection.client else "",
            "client_request_id": connection.state.client_id,
        }
        route = getattr(scope.get("route"), "path", None)
        self._metrics.count(method, route, status, seconds)
        quiet = route in _ASKED_BY_MACHINES and status < _FAILED
        known = "".join(f", {name} {value}" for name, value in who.items() if value)
        cut = "" if answer.whole else " and cut"
        log.log(
            logging.DEBUG if quiet else logging.INFO,
            "%s %s %d in %.1f ms, %d bytes%s%s",
            *(method, path, status, milliseconds, answer.bytes, cut, known),
            extra={
                "method": method,
                "path": path,
                "status": status,
                "ms": milliseconds,
                "bytes": answer.bytes,
                "whole": answer.whole,
                **who,
            },
        )


class _Answer:
    """What went out: its status, how many bytes of body, and whether to its end."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self.status: int | None = None
        self.bytes = 0
        self.whole = False

    async def send(self, message: Message) -> None:
        """Pass a message on."""
        await self._send(message)
        match message["type"]:
            case "http.response.start" | "websocket.http.response.start":
                self.status = message["status"]
            case "http.response.body" | "websocket.http.response.body":
                self.bytes += len(message.get("body", b""))
                self.whole = not message.get("more_body", False)
            case "websocket.accept":
                self.status, self.whole = _SWITCHED, True  # how it ends, its messages tell
            case "websocket.send":
                self.bytes += len(message.get("bytes") or message.get("text") or "")

"""The line in the log of each request, and its count in the metrics."""

import logging
from typing import Final

from starlette.requests import HTTPConnection
from starlette.types import Scope

from app.api.errors import CLIENT_CLOSED, FIRST_ERROR
from app.api.middleware.metrics import HttpMetrics
from app.api.middleware.rules import POLLED
from app.api.middleware.send import MonitoredSend

log = logging.getLogger("app.api.gate.access_log")  # operators filter by this name

LONGEST_PATH: Final = 200  # characters of a path that are logged


def log_request(metrics: HttpMetrics, scope: Scope, answer: MonitoredSend, seconds: float) -> None:
    """Log a request that took so many seconds, and count it."""
    connection = HTTPConnection(scope)
    status = answer.status or CLIENT_CLOSED
    method = scope.get("method", "WS")
    path = scope["path"][:LONGEST_PATH]
    milliseconds = round(1000 * seconds, 1)
    who = {
        "owner": connection.state.owner,
        "client": connection.client.host if connection.client else "",
        "client_request_id": connection.state.client_id,
    }
    route = getattr(scope.get("route"), "path", None)
    metrics.count(method, route, status, seconds)
    quiet = route in POLLED and status < FIRST_ERROR
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

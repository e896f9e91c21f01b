"""The head of a request: how large it may be, and that it has one length of its body."""

from starlette.responses import Response
from starlette.types import Scope

from app.api.errors import CLOSE, error_response

MAX_HEAD_BYTES = 16_384
"""Limit of request line and headers; the 3,300 headers that fit take 5 ms of the event loop."""

_SEPARATORS = 4  # ": " and "\r\n"
_VERSION = 12  # " HTTP/1.1" with its separators


def head_refusal(scope: Scope) -> Response | None:
    """Return the error response for a head that is refused, or None.

    A request with two lengths of its body may be read differently by a proxy before this server
    (RFC 9112, section 6.1), so the connection is closed and nothing after it is read.
    """
    if _size_bytes(scope) > MAX_HEAD_BYTES:
        message = f"the request line and headers have more than {MAX_HEAD_BYTES} bytes"
        return error_response(431, message, code="head_too_large", headers=CLOSE)
    names = {name for name, _ in scope["headers"]}
    if {b"content-length", b"transfer-encoding"} <= names:
        message = "send content-length or transfer-encoding, not both"
        return error_response(
            400, message, param="content-length", code="two_lengths", headers=CLOSE
        )
    return None


def _size_bytes(scope: Scope) -> int:
    """Return the size of a head in its usual notation."""
    target = len(scope.get("raw_path") or scope["path"].encode()) + len(scope["query_string"])
    line = len(scope.get("method", "GET")) + 1 + target + _VERSION
    return line + sum(len(name) + len(value) + _SEPARATORS for name, value in scope["headers"])

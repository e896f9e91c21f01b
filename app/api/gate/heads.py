"""What the head of a request may be, before anything is made of it."""

from starlette.responses import Response
from starlette.types import Scope

from app.api.errors import error_response

MAX_HEAD_BYTES = 16_384
"""Of the line of a request and its headers; the 3,300 headers that fit take 5 ms of the loop."""

_CLOSING = {"Connection": "close"}
_AROUND = 4  # ": " and the end of a line
_VERSION = 12  # " HTTP/1.1" and what stands around it


def head_refusal(scope: Scope) -> Response | None:
    """Return why a request's head is not taken, or None.

    A request that tells two lengths of its body is one to us and may be two to a proxy before us
    (RFC 9112, section 6.1), so nothing that follows on its connection is read.
    """
    if _bytes(scope) > MAX_HEAD_BYTES:
        message = f"the head of the request has more than {MAX_HEAD_BYTES} bytes"
        return error_response(431, message, code="head_too_large", headers=_CLOSING)
    names = {name for name, _ in scope["headers"]}
    if {b"content-length", b"transfer-encoding"} <= names:
        message = "send content-length or transfer-encoding, not both"
        return error_response(
            400, message, param="content-length", code="two_lengths", headers=_CLOSING
        )
    return None


def _bytes(scope: Scope) -> int:
    """Return the size of a head, as it is usually written."""
    target = len(scope.get("raw_path") or scope["path"].encode()) + len(scope["query_string"])
    line = len(scope.get("method", "GET")) + 1 + target + _VERSION
    return line + sum(len(name) + len(value) + _AROUND for name, value in scope["headers"])

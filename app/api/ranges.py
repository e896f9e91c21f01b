"""Parts of stored audio by the header `Range`, as players ask for them (RFC 9110, section 14)."""

import hashlib
import re
from typing import Any, Final

from fastapi import Request, Response

from app.api.errors import error_response
from app.api.schemas import error_responses

_ONE_RANGE: Final = re.compile(r"bytes=(\d{0,18})-(\d{0,18})", re.ASCII | re.IGNORECASE)

RANGES: Final[dict[int | str, dict[str, Any]]] = {
    206: {"description": "The part that the header `Range` asks for."},
    **error_responses(_416="The audio has no such part; `Content-Range` has its length."),
}
"""Entries of the OpenAPI document."""


def ranged(request: Request, answer: Response) -> Response:
    """Return the part of a whole file that a request asks for, or all of it.

    A header of several ranges or in another unit is ignored, as the RFC allows.
    """
    if answer.status_code != 200:
        return answer
    body = bytes(answer.body)
    tag = f'"{hashlib.sha256(body).hexdigest()[:32]}"'
    answer.headers.update({"Accept-Ranges": "bytes", "ETag": tag})
    asked = _ONE_RANGE.fullmatch(request.headers.get("range", "").replace(" ", ""))
    first, last = asked.groups() if asked else ("", "")
    if not (first or last) or request.headers.get("if-range", tag) != tag:
        return answer
    size = len(body)
    begin = int(first) if first else max(0, size - int(last))
    end = min(int(last) + 1, size) if first and last else size
    if first and last and int(last) < int(first):  # no range at all
        return answer
    if begin >= size:
        headers = {"Content-Range": f"bytes */{size}", "Accept-Ranges": "bytes"}
        message = f"the audio has {size} bytes"
        return error_response(416, message, param="range", code="no_such_range", headers=headers)
    answer.body = body[begin:end]
    answer.status_code = 206
    answer.headers["Content-Range"] = f"bytes {begin}-{end - 1}/{size}"
    answer.headers["Content-Length"] = str(end - begin)
    return answer

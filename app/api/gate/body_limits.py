"""Limits on the size of a request body and on the time to send it."""

import asyncio

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

PATIENCE_S = 5.0
"""Seconds a body may take in addition to its size over `LEAST_BYTES_A_S`."""

LEAST_BYTES_A_S = 1024
"""Least transfer rate; a slower client occupies a connection without using it."""

_CLOSE = {"Connection": "close"}  # the rest of the body is not read


def media_type(headers: Headers) -> str:
    """Return the media type of a body in lower case, without parameters."""
    return headers.get("content-type", "").partition(";")[0].strip().lower()


class BodyLimitMiddleware:
    """ASGI middleware that fails a body which is too large or too slow, while it is read."""

    def __init__(
        self, app: ASGIApp, *, max_body_bytes: int, max_upload_bytes: int, timeout_s: float
    ) -> None:
        """Wrap an application.

        Args:
            app: The application.
            max_body_bytes: Limit of a body.
            max_upload_bytes: Limit of a multipart form.
            timeout_s: Seconds a client may take to send a body.
        """
        self._app = app
        self._max_body_bytes, self._max_upload_bytes = max_body_bytes, max_upload_bytes
        self._timeout_s = timeout_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request."""
        if scope["type"] == "http":
            headers = Headers(scope=scope)
            upload = media_type(headers) == "multipart/form-data"
            limit_bytes = self._max_upload_bytes if upload else self._max_body_bytes
            receive = _LimitedReceive(receive, headers, limit_bytes, self._timeout_s)
        await self._app(scope, receive, send)


class _LimitedReceive:
    """An ASGI `receive` that enforces the limits until the body is complete."""

    def __init__(
        self, receive: Receive, headers: Headers, limit_bytes: int, timeout_s: float
    ) -> None:
        self._receive = receive
        self._limit_bytes, self._timeout_s = limit_bytes, timeout_s
        declared = headers.get("content-length", "")
        self._declared_bytes = int(declared) if declared.isdecimal() else 0
        self._started_s = asyncio.get_running_loop().time()
        self._bytes = 0
        self._complete = False

    async def __call__(self) -> Message:
        """Return the next message.

        Raises:
            HTTPException: The body is too large or too slow.
        """
        if self._complete:
            return await self._receive()
        self._check(self._declared_bytes)
        allowed_s = PATIENCE_S + self._bytes / LEAST_BYTES_A_S
        try:
            async with asyncio.timeout_at(self._started_s + min(allowed_s, self._timeout_s)):
                message = await self._receive()
        except TimeoutError:
            text = f"the body took longer than {self._timeout_s:g} s"
            if allowed_s < self._timeout_s:
                text = f"the body was sent at less than {LEAST_BYTES_A_S} bytes per second"
            raise HTTPException(408, text, _CLOSE) from None
        self._bytes += len(message.get("body", b""))
        self._check(self._bytes)
        self._complete = not message.get("more_body", False)
        return message

    def _check(self, size_bytes: int) -> None:
        """Check a size against the limit.

        Raises:
            HTTPException: It is exceeded.
        """
        if size_bytes > self._limit_bytes:
            text = f"the body is larger than {self._limit_bytes} bytes"
            raise HTTPException(413, text, _CLOSE)

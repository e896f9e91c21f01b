"""How large a request body may be and how long it may take, whoever reads it."""

import asyncio

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

PATIENCE_S = 5.0
"""How long a body may take beyond what the least rate gives it, a pause included."""

LEAST_BYTES_A_S = 1024
"""Slower is no network, but somebody who holds a place."""

_CLOSING = {"Connection": "close"}  # the rest of the body is not read


def media_type(headers: Headers) -> str:
    """Return what a body is said to be, as it is compared: lower case, without parameters."""
    return headers.get("content-type", "").partition(";")[0].strip().lower()


class BodyLimits:
    """Breaks off a body that is too large or too slow, where the application reads it."""

    def __init__(
        self, app: ASGIApp, *, max_body_bytes: int, max_upload_bytes: int, timeout_s: float
    ) -> None:
        """Stand before an application.

        Args:
            app: What is behind.
            max_body_bytes: Largest body.
            max_upload_bytes: Largest body with a file in it, a form of several parts.
            timeout_s: How long its sender may take.
        """
        self._app = app
        self._max_body_bytes, self._max_upload_bytes = max_body_bytes, max_upload_bytes
        self._timeout_s = timeout_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on."""
        if scope["type"] == "http":
            headers = Headers(scope=scope)
            upload = media_type(headers) == "multipart/form-data"
            limit_bytes = self._max_upload_bytes if upload else self._max_body_bytes
            receive = _Body(receive, headers, limit_bytes, self._timeout_s)
        await self._app(scope, receive, send)


class _Body:
    """What comes from one client: its body, within the limits, and then that it leaves."""

    def __init__(
        self, receive: Receive, headers: Headers, limit_bytes: int, timeout_s: float
    ) -> None:
        self._receive = receive
        self._limit_bytes, self._timeout_s = limit_bytes, timeout_s
        said = headers.get("content-length", "")
        self._said_bytes = int(said) if said.isdecimal() else 0
        self._began_s = asyncio.get_running_loop().time()
        self._bytes = 0
        self._whole = False

    async def __call__(self) -> Message:
        """Return what comes next.

        Raises:
            HTTPException: The body is too large or too slow.
        """
        if self._whole:
            return await self._receive()
        self._check(self._said_bytes)
        may_take_s = PATIENCE_S + self._bytes / LEAST_BYTES_A_S
        try:
            async with asyncio.timeout_at(self._began_s + min(may_take_s, self._timeout_s)):
                message = await self._receive()
        except TimeoutError:
            text = f"the body took longer than {self._timeout_s:g} s"
            if may_take_s < self._timeout_s:
                text = f"the body came slower than {LEAST_BYTES_A_S} bytes a second"
            raise HTTPException(408, text, _CLOSING) from None
        self._bytes += len(message.get("body", b""))
        self._check(self._bytes)
        self._whole = not message.get("more_body", False)
        return message

    def _check(self, size_bytes: int) -> None:
        """Do nothing if a body may be that large.

        Raises:
            HTTPException: It may not.
        """
        if size_bytes > self._limit_bytes:
            text = f"the body is larger than {self._limit_bytes} bytes"
            raise HTTPException(413, text, _CLOSING)

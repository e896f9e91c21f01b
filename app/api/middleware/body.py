"""The body of a request: how large it may be, and how slowly it may come."""

import asyncio

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.types import Message, Receive

from app.api.errors import CLOSE

PATIENCE_S = 5.0
"""Seconds a body may take in addition to its size over `LEAST_BYTES_A_S`."""

LEAST_BYTES_A_S = 1024
"""Least transfer rate; a slower client occupies a connection without using it."""


class LimitedBody:
    """An ASGI `receive` that fails a body which is too large or too slow, while it is read."""

    def __init__(
        self, receive: Receive, headers: Headers, limit_bytes: int, timeout_s: float
    ) -> None:
        self._receive = receive
        self._limit_bytes = limit_bytes
        self._timeout_s = timeout_s
        declared = headers.get("content-length", "")
        self._declared_bytes = int(declared) if declared.isdecimal() else 0
        self._started_s = asyncio.get_running_loop().time()
        self._bytes = 0
        self._complete = False

    @property
    def size_bytes(self) -> int:
        """Size of the body as declared or read so far, whichever is larger."""
        return max(self._declared_bytes, self._bytes)

    async def __call__(self) -> Message:
        """Return the next message; raises HTTPException if the body is too large or too slow."""
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
            raise HTTPException(408, text, CLOSE) from None
        self._bytes += len(message.get("body", b""))
        self._check(self._bytes)
        self._complete = not message.get("more_body", False)
        return message

    def _check(self, size_bytes: int) -> None:
        if size_bytes > self._limit_bytes:
            text = f"the body is larger than {self._limit_bytes} bytes"
            raise HTTPException(413, text, CLOSE)

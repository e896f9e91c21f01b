"""Limits of a request: its head, size and pace of its body and its answer, values in its JSON."""

import asyncio
import re
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final

from pydantic_core import from_json
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from app.api.errors import error_response
from app.engine.errors import InvalidRequest, ReaderStalled

PATIENCE_S = 5.0
"""Seconds a body may take in addition to its size over `LEAST_BYTES_A_S`."""

LEAST_BYTES_A_S = 1024
"""Least transfer rate; a slower client occupies a connection without using it."""

UPLOADS: Final = frozenset({
    ("POST", "/v1/audio/voices"),
    ("POST", "/v1/audio/codes"),
    ("POST", "/v1/voices/add"),
})
"""Method and path of the routes that take recordings; `max_upload_bytes` is for them alone."""

PACED_BYTES: Final = 65_536
"""More than any text in JSON takes; what is larger than this is paced."""

PACE_BYTES_S: Final = 500_000
LONGEST_PAUSE_S: Final = 1.0

ID_HEADER: Final = "x-request-id"
FIRST_ERROR: Final = 400  # the first status of errors

_CLOSE: Final = {"Connection": "close"}  # the rest of the body is not read
_SWITCHING_PROTOCOLS: Final = 101


async def pace(size_bytes: int) -> None:
    """Wait a time that is proportional to the size of a large input, at most a second.

    To read and refuse megabytes takes milliseconds, during which no other thread runs Python. Sent
    again and again without a pause they take the processor from the requests of others.
    """
    if size_bytes > PACED_BYTES:
        await asyncio.sleep(min(size_bytes / PACE_BYTES_S, LONGEST_PAUSE_S))


def media_type(headers: Headers) -> str:
    """Return the media type of a body in lower case, without parameters."""
    return headers.get("content-type", "").partition(";")[0].strip().lower()


class LimitedBody:
    """An ASGI `receive` that fails a body which is too large or too slow, while it is read."""

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
            raise HTTPException(408, text, _CLOSE) from None
        self._bytes += len(message.get("body", b""))
        self._check(self._bytes)
        self._complete = not message.get("more_body", False)
        return message

    def _check(self, size_bytes: int) -> None:
        """Check a size against the limit."""
        if size_bytes > self._limit_bytes:
            text = f"the body is larger than {self._limit_bytes} bytes"
            raise HTTPException(413, text, _CLOSE)


PIECE_BYTES: Final = 65_536
"""Longest piece of an answer: with the time limit, also the least rate at which it must be read."""


class SentAnswer:
    """An ASGI `send` that adds the request's id, notes what was sent, and waits for the client.

    A body that is handed to the server at once lies in the memory of the connection for as long as
    the client likes, and nobody knows when it is sent. Here a request ends when its answer was
    taken: large bodies are sent in pieces, and `ReaderStalled` is raised if the client reads none
    for a time. Errors in answer to large bodies are sent after a pause, see `pace`. ``state`` of
    the request has its `id` and, once it is admitted over HTTP, its `body`.
    """

    def __init__(self, send: Send, state: Mapping[str, Any], stall_timeout_s: float) -> None:
        self._send, self._state, self._stall_timeout_s = send, state, stall_timeout_s
        self.status: int | None = None  # of HTTP, or 101 of an accepted WebSocket
        self.bytes = 0  # of the body or the messages sent so far
        self.started = self.whole = False  # whether the head, and all of the body, was sent
        self.stalled = False  # whether `ReaderStalled` was raised

    async def send(self, message: Message) -> None:
        """Send a message; a body of several pieces was taken by the client when this returns."""
        kind = message["type"].removeprefix("websocket.")
        if kind in {"http.response.start", "accept"}:
            self.started = True
            own = (ID_HEADER.encode(), self._state["id"].encode())
            message["headers"] = [*message.get("headers", ()), own]
        if "body" in self._state and message.get("status", 0) >= FIRST_ERROR:
            await pace(self._state["body"].size_bytes)
        body = memoryview(message.get("body", b""))
        if len(body) > PIECE_BYTES:
            for start in range(0, len(body), PIECE_BYTES):
                piece = bytes(body[start : start + PIECE_BYTES])
                await self._one({**message, "body": piece, "more_body": True}, kind)
            message = {**message, "body": b""}  # which the server sends once the last piece is gone
        await self._one(message, kind)

    async def _one(self, message: Message, kind: str) -> None:
        """Send a message, or raise ReaderStalled over HTTP, and note it."""
        try:
            async with asyncio.timeout(self._stall_timeout_s if "body" in self._state else None):
                await self._send(message)
        except TimeoutError:
            self.stalled = True
            raise ReaderStalled(
                f"the client read nothing for {self._stall_timeout_s:g} s"
            ) from None
        match kind:
            case "http.response.start":
                self.status = message["status"]
            case "http.response.body":
                self.bytes += len(message.get("body", b""))
                self.whole = not message.get("more_body", False)
            case "accept":
                self.status, self.whole = _SWITCHING_PROTOCOLS, True
            case "send":
                self.bytes += len(message.get("bytes") or message.get("text") or "")


MAX_HEAD_BYTES = 16_384
"""Limit of request line and headers; the 3,300 headers that fit take 5 ms of the event loop."""

_SEPARATORS = 4  # ": " and "\r\n"
_VERSION = 12  # " HTTP/1.1" with its separators


def head_refusal(scope: Scope) -> Response | None:
    """Return the error response for a head that is refused, or None.

    A request with two lengths of its body may be read differently by a proxy before this server
    (RFC 9112, section 6.1), so the connection is closed and nothing after it is read.
    """
    if _bytes(scope) > MAX_HEAD_BYTES:
        message = f"the request line and headers have more than {MAX_HEAD_BYTES} bytes"
        return error_response(431, message, code="head_too_large", headers=_CLOSE)
    names = {name for name, _ in scope["headers"]}
    if {b"content-length", b"transfer-encoding"} <= names:
        message = "send content-length or transfer-encoding, not both"
        return error_response(
            400, message, param="content-length", code="two_lengths", headers=_CLOSE
        )
    return None


def _bytes(scope: Scope) -> int:
    """Return the size of a head in its usual notation."""
    target = len(scope.get("raw_path") or scope["path"].encode()) + len(scope["query_string"])
    line = len(scope.get("method", "GET")) + 1 + target + _VERSION
    return line + sum(len(name) + len(value) + _SEPARATORS for name, value in scope["headers"])


MAX_FIELDS: Final = 256
MAX_VALUES: Final = 8192
"""More than the longest valid request has in all its lists."""

_TOO_MANY_VALUES: Final = f"the body has more than {MAX_VALUES} values in its lists and objects"
_STRING: Final = re.compile(rb'"(?:[^"\\]++|\\.)*+"?', re.DOTALL)  # or the rest, where none ends
_SMALL_BYTES: Final = 2 * MAX_FIELDS  # too short to exceed either limit


def check_json_size(raw: bytes | str) -> None:
    """Check the number of fields and values as `sized_json`; anything that is not JSON passes.

    pydantic reports errors value by value in a single call, which for 100,000 values would block
    the event loop for a second.
    """
    if len(raw) > _SMALL_BYTES:
        with suppress(ValueError):
            sized_json(raw)


def sized_json(raw: bytes | str) -> Any:
    """Return what JSON says.

    Raises ValueError if it is none, InvalidRequest if it has too many fields or values.
    """
    if _has_too_many_values(raw if isinstance(raw, bytes) else raw.encode(errors="replace")):
        raise InvalidRequest(_TOO_MANY_VALUES)
    sent = from_json(raw)
    if isinstance(sent, dict) and len(sent) > MAX_FIELDS:
        raise InvalidRequest(f"the body has {len(sent)} fields, the limit is {MAX_FIELDS}")
    values, inner = 0, [sent]
    while inner and values <= MAX_VALUES:
        one = inner.pop()
        values += len(one) if isinstance(one, dict | list) else 0
        if isinstance(one, dict):
            one = list(one.values())
        if isinstance(one, list):
            inner += [value for value in one[:MAX_VALUES] if isinstance(value, dict | list)]
    if values > MAX_VALUES:
        raise InvalidRequest(_TOO_MANY_VALUES)
    return sent


def _has_too_many_values(raw: bytes) -> bool:
    """Return whether the marks of JSON tell so; parsed, its values would hold up all threads."""
    if raw.count(b'"') - raw.count(b'\\"') > 4 * MAX_VALUES + 2:  # of keys, values and the whole
        return True
    return _has_many_marks(raw) and _has_many_marks(_STRING.sub(b"", raw))


def _has_many_marks(raw: bytes) -> bool:
    return raw.count(b",") > MAX_VALUES or raw.count(b"[") + raw.count(b"{") > MAX_VALUES + 1

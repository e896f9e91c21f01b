"""The middleware that every request passes: its id, access, limits, metrics and line in the log.

Every path that is not listed here requires a key, so a new route is never open by accident. Which
host names and which web pages may call the service from a browser is checked here, too. The check
of `Host` protects against DNS rebinding where no API key is required: a foreign web page can have
its own host name resolve to this machine. To the browser the page and the service are then one
origin, and only `Host` tells them apart. Addresses and `localhost` are always allowed: neither can
be made to resolve elsewhere. Where keys are required such a page has none, and any host is allowed.
"""

import asyncio
import ctypes
import logging
import platform
import re
import socket
from collections.abc import Mapping
from contextlib import ExitStack
from fnmatch import fnmatchcase
from ipaddress import ip_address
from time import perf_counter
from typing import Any, Final
from uuid import uuid4

from fastapi import Security
from fastapi.security import HTTPBearer
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Info
from prometheus_client.process_collector import ProcessCollector
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import HTTPConnection
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.api.errors import CLIENT_CLOSED, error_response, speech_error_response
from app.api.gate.admission import (
    Admission,
    Keyring,
    address_of,
    client_of,
    sent_key,
    shutting_down,
)
from app.api.gate.readers import PIECE_BYTES, Patience
from app.api.schemas import error_responses
from app.engine.errors import ReaderStalled, SpeechError
from app.logs import REQUEST_ID
from app.settings import Settings
from app.studio.route import OPEN_PATHS
from app.version import VERSION

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
            raise HTTPException(408, text, _CLOSE) from None
        self._bytes += len(message.get("body", b""))
        self._check(self._bytes)
        self._complete = not message.get("more_body", False)
        return message

    def _check(self, size_bytes: int) -> None:
        if size_bytes > self._limit_bytes:
            text = f"the body is larger than {self._limit_bytes} bytes"
            raise HTTPException(413, text, _CLOSE)


class SentAnswer:
    """An ASGI `send` that adds the request's id, notes what was sent, and waits for the client.

    A body that is handed to the server at once lies in the memory of the connection for as long as
    the client likes, and nobody knows when it is sent. Here a request ends when its answer was
    taken: large bodies are sent in pieces, and `ReaderStalled` is raised if the client reads too
    little (`Patience`). Errors in answer to large bodies are sent after a pause, see `pace`.
    ``state`` of the request has its `id` and, once it is admitted over HTTP, its `body`.
    """

    def __init__(self, send: Send, state: Mapping[str, Any], stall_timeout_s: float) -> None:
        self._send = send
        self._state = state
        self._patience = Patience(stall_timeout_s)
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
        sending = self._send(message)
        try:
            if "body" in self._state:
                await self._patience.send(sending, len(message.get("body", b"")))
            else:
                await sending
        except TimeoutError:
            self.stalled = True
            raise ReaderStalled("the client read too little for too long") from None
        match kind:
            case "http.response.start":
                self.status = message["status"]
            case "http.response.body":
                self.bytes += len(message.get("body", b""))
                self.whole = not message.get("more_body", False)
            case "accept":
                self.status = _SWITCHING_PROTOCOLS
                self.whole = True
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


_LATENCIES_S = (0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 15.0, 60.0, 300.0)
_COUNTED_METHODS = frozenset({"GET", "HEAD", "POST", "DELETE", "OPTIONS", "WS"})
_NO_ROUTE = "none"  # unknown path, or refused before routing
_OTHER = "other"


class HttpMetrics:
    """Metrics of one application and its process; labels are bounded, whatever clients send."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        self.requests = Counter(
            "tts_http_requests",
            "Completed HTTP requests and WebSocket sessions.",
            ["method", "route", "status"],
            registry=registry,
        )
        self.seconds = Histogram(
            "tts_http_request_seconds",
            "Seconds from an HTTP request to the last byte of its response.",
            ["route"],
            buckets=_LATENCIES_S,
            registry=registry,
        )
        self.sessions = Gauge("tts_live_sessions", "Open WebSocket sessions.", registry=registry)
        self.working = Gauge(
            "tts_http_working", "Speeches and uploads in progress.", registry=registry
        )
        self.voices = Gauge(
            "tts_uploaded_voices", "Uploaded voices, of all owners.", registry=registry
        )
        build = Info("tts_build", "Versions of the service and of Python.", registry=registry)
        build.info({"version": VERSION, "python": platform.python_version()})
        ProcessCollector(registry=registry)

    def count(self, method: str, route: str | None, status: int, seconds: float) -> None:
        """Count a completed request by its route's path template; None if it reached none."""
        route = route or _NO_ROUTE
        self.requests.labels(
            method if method in _COUNTED_METHODS else _OTHER, route, str(status)
        ).inc()
        if method != "WS":
            self.seconds.labels(route).observe(seconds)


_HOST = re.compile(r"(?:\[(?P<v6>[0-9a-f:.]+)\]|(?P<name>[^:\[\]/@\s]+))(?::\d{1,5})?")
_LOOPBACK = frozenset({"localhost", "*.localhost"})
_SHOWN_CHARS = 100


class Hosts:
    """The allowed host names: loopback's, this machine's, and those that the operator lists."""

    def __init__(self, listening: str, listed: str) -> None:
        listed_names = filter(None, map(_normalised, listed.split(",")))
        self._names = _LOOPBACK | {
            _normalised(listening),
            _normalised(socket.gethostname()),
            *listed_names,
        }

    def allow(self, connection: HTTPConnection) -> bool:
        """Return whether a request's `Host` is an allowed name or an address.

        A request without it is allowed: browsers always send one.
        """
        sent = connection.headers.getlist("host")
        return len(sent) <= 1 and (not any(sent) or self._known(sent[0].lower()))

    def _known(self, sent: str) -> bool:
        if "*" in self._names:
            return True
        parts = _HOST.fullmatch(sent)
        if parts is None:
            return False
        name = parts["v6"] or _normalised(parts["name"])
        return _is_address(name) or any(fnmatchcase(name, known) for known in self._names)


def unknown_host(connection: HTTPConnection) -> Response:
    """Return the error response for a host name that is not allowed."""
    message = (
        f"the host name {connection.headers.get('host', '')[:_SHOWN_CHARS]!r} is not allowed; the"
        " operator can list names in TTS_ALLOWED_HOSTS, or require API keys"
    )
    return error_response(403, message, param="host", code="host")


def _normalised(name: str) -> str:
    """Return a host name in lower case without the trailing dot of a full name."""
    return name.strip().lower().rstrip(".")


def _is_address(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True


_REQUEST_HEADERS = ("authorization", "content-type", "range", "x-request-id")
_SCHEMES = frozenset({"http", "https"})
_METHODS = ("GET", "HEAD", "POST", "DELETE")
_EXPOSED = (
    "x-request-id",
    "X-Seed",
    "X-Ignored",
    "X-Warning",
    "X-Left-Out",
    "X-Preset",
    "X-Voice",
    "X-NAR",
    "X-Decoder",
    "X-Sample-Rate",
    "X-Finish-Reason",
    "X-Backtracks",
    "X-Codes-SHA256",
    "X-Frames",
    "X-Audio-Ms",
    "X-Queue-Ms",
    "X-TTFA-Ms",
    "X-RTF",
    "X-Repeats",
    "X-Prompt-Tokens",
    "X-Completion-Tokens",
    "Accept-Ranges",
    "Content-Range",
    "Server-Timing",
    "Retry-After",
)


class Origins:
    """The web origins that the operator allows."""

    def __init__(self, listed: str) -> None:
        self.named = frozenset(filter(None, map(str.strip, listed.split(","))))

    def allow(self, connection: HTTPConnection) -> bool:
        """Return whether a request's origin is allowed; requests without one are.

        The origin `null` is never the service's own.
        """
        sent = connection.headers.getlist("origin")
        if not sent or "*" in self.named or set(sent) <= self.named:
            return True
        scheme, _, host = sent[0].lower().partition("://")
        own = connection.headers.get("host", "").lower()
        return len(sent) == 1 and scheme in _SCHEMES and bool(host) and host == own


class CrossOriginMiddleware(CORSMiddleware):
    """CORS for the allowed origins, with the standard error body for refused preflight requests."""

    def __init__(self, app: ASGIApp, origins: Origins) -> None:
        super().__init__(
            app,
            allow_origins=origins.named,
            allow_methods=_METHODS,
            allow_headers=_REQUEST_HEADERS,
            expose_headers=_EXPOSED,
        )

    def preflight_response(self, request_headers: Headers) -> Response:
        """Answer a preflight request."""
        answer = super().preflight_response(request_headers)
        if answer.status_code == 200:
            return answer
        return error_response(403, bytes(answer.body).decode(), code="cors")


def foreign_origin() -> Response:
    """Return the error response for an origin that is not allowed."""
    return error_response(403, "this origin is not allowed", param="origin", code="origin")


log = logging.getLogger("app.api.gate.access_log")  # operators filter by this name

_CLIENT_ID: Final = r"(?:[A-Za-z0-9._:/+=@-]{1,200})?"

PROBES: Final = frozenset({"/health", "/ready"})
"""Paths that need no key and count towards no limit."""

_DOCUMENTS: Final = OPEN_PATHS | {"/openapi.json"}
_METRICS: Final = "/metrics"

GATE_RESPONSES = error_responses(
    _400="The head declares two lengths of the body.",
    _401="No API key, or an unknown one.",
    _403="The origin or the host name is not allowed.",
    _408="The body was sent too slowly.",
    _422="A header is invalid; `param` names it.",
    _429="Too many requests, in total or at once; retry in Retry-After seconds.",
    _431="The request line and headers are too large.",
)
"""Responses of the middleware, for every route but the probes."""

BEARER_KEY = Security(
    HTTPBearer(auto_error=False, description="API key, if the service requires one.")
)
"""Documents the key in OpenAPI; the middleware has checked it already."""


_POLLED: Final = PROBES | {_METRICS}
"""Polled routes: logged at level debug unless they fail."""

_LONGEST_PATH: Final = 200
_SERVER_ERROR: Final = 500
_LARGE_BYTES: Final = 2**22
"""Answers from this size on leave memory that the C library keeps unless it is asked."""


class GateMiddleware:
    """ASGI middleware that refuses requests, or limits their bodies and answers; logs each.

    It sets `request.state.id`, a new id, and sends it as `x-request-id`: a speech is fetched by its
    id, and a client could choose that of another. `state.client_id` is the id that the client sent:
    empty if there is none, None if it is invalid. `state.owner` is the owner of the key, and
    `state.held` an `ExitStack` that is closed when the answer was taken.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        settings: Settings,
        keyring: Keyring,
        admission: Admission,
        metrics: HttpMetrics,
    ) -> None:
        self._app = app
        self._settings = settings
        self._keyring = keyring
        self._admission = admission
        self._metrics = metrics
        self._hosts = Hosts(settings.host, settings.allowed_hosts)
        self._origins = Origins(settings.origins)
        open_metrics = {_METRICS} if settings.metrics == "open" else frozenset[str]()
        self._open = PROBES | _DOCUMENTS | open_metrics
        self._admit: ASGIApp = self._admitted
        if self._origins.named:
            self._admit = CrossOriginMiddleware(self._admitted, self._origins)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request, log it, and turn an uncaught exception into a 500."""
        if scope["type"] not in {"http", "websocket"}:
            await self._app(scope, receive, send)
            return
        _identify(scope)
        answer = SentAnswer(send, scope["state"], self._settings.stall_timeout_s)
        began_s = perf_counter()
        failed: Exception | None = None
        try:
            await self._admit(scope, receive, answer.send)
        except asyncio.CancelledError:  # the server ends the task: its time to drain has passed
            if answer.started or scope["type"] != "http" or not self._admission.closed:
                raise
            await speech_error_response(shutting_down())(scope, receive, answer.send)
        except Exception as error:  # of any route
            if answer.stalled:
                path = scope["path"][:_LONGEST_PATH]
                log.warning("%s: cut off, as the client does not read", path)
            else:
                failed = error
                answer.status = answer.status or _SERVER_ERROR
        finally:
            self._log(scope, answer, perf_counter() - began_s)
            self._count_cut(scope, answer)
            if answer.bytes >= _LARGE_BYTES:
                asyncio.get_running_loop().run_in_executor(None, _give_back_memory)
        if failed is None:
            return
        log.error("request %s failed", scope["state"]["id"], exc_info=failed)
        if answer.started:
            raise failed
        refusal = error_response(500, "internal error; the log has the details", code="internal")
        await refusal(scope, receive, answer.send)

    async def _admitted(self, scope: Scope, receive: Receive, send: Send) -> None:
        connection = HTTPConnection(scope)
        with ExitStack() as work:
            connection.state.held = work
            refusal = await self._refusal(connection, work)
            if refusal is None and scope["type"] == "http":
                receive = connection.state.body = self._limited(scope, receive)
            await (refusal or self._app)(scope, receive, send)

    def _count_cut(self, scope: Scope, answer: SentAnswer) -> None:
        """Count a speech that its client has left, or does not read."""
        left = not answer.whole or answer.status == CLIENT_CLOSED
        if left and "body" in scope["state"] and _is_work(scope):
            self._admission.cut(client_of(HTTPConnection(scope)))

    async def _refusal(self, connection: HTTPConnection, work: ExitStack) -> Response | None:
        """Return the error response for a request that is refused, or None."""
        if (refusal := head_refusal(connection.scope)) is not None:
            return refusal
        if not self._origins.allow(connection):
            return foreign_origin()
        if connection.state.client_id is None:
            message = f"{ID_HEADER}: up to 200 of A-Z a-z 0-9 . _ : / + = @ -"
            return error_response(422, message, param=ID_HEADER, code="invalid_value")
        path = connection.scope["path"]
        if not self._keyring and path not in PROBES and not self._hosts.allow(connection):
            return unknown_host(connection)
        if path in self._open:
            return None
        if self._keyring:
            key = sent_key(connection)
            owner = None if key is None else self._keyring.owner(key)
            if owner is None:
                return _unknown(key)
            connection.state.owner = owner
        try:
            client = client_of(connection)
            if path != _METRICS:  # as often as Prometheus asks
                await self._admission.count(client)
            if _is_work(connection.scope):
                work.enter_context(await self._admission.work(client))
        except SpeechError as error:
            return speech_error_response(error)
        return None

    def _limited(self, scope: Scope, receive: Receive) -> LimitedBody:
        """Return the body of an HTTP request within its limits."""
        settings = self._settings
        upload = (scope["method"], scope["path"]) in UPLOADS
        limit_bytes = settings.max_upload_bytes if upload else settings.max_body_bytes
        return LimitedBody(receive, Headers(scope=scope), limit_bytes, settings.body_timeout_s)

    def _log(self, scope: Scope, answer: SentAnswer, seconds: float) -> None:
        connection = HTTPConnection(scope)
        status = answer.status or CLIENT_CLOSED
        method = scope.get("method", "WS")
        path = scope["path"][:_LONGEST_PATH]
        milliseconds = round(1000 * seconds, 1)
        who = {
            "owner": connection.state.owner,
            "client": connection.client.host if connection.client else "",
            "client_request_id": connection.state.client_id,
        }
        route = getattr(scope.get("route"), "path", None)
        self._metrics.count(method, route, status, seconds)
        quiet = route in _POLLED and status < FIRST_ERROR
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


def _identify(scope: Scope) -> None:
    """Give a request its id, and note that of the client and its address."""
    request_id = uuid4().hex
    sent_id = Headers(scope=scope).get(ID_HEADER, "")
    client_id = sent_id if re.fullmatch(_CLIENT_ID, sent_id) else None
    scope.setdefault("state", {}).update(id=request_id, owner="", client_id=client_id)
    if (client := scope.get("client")) is not None:
        # A proxy that is trusted to name the client may pass on any text.
        scope["client"] = (str(address_of(client[0]) or ""), client[1])
    REQUEST_ID.set(request_id)


def _give_back_memory() -> None:
    """Return freed memory to the system, where the C library can: glibc keeps much of it."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def _is_work(scope: Scope) -> bool:
    """Return whether a request generates speech or uploads; in a WebSocket its responses do."""
    path: str = scope["path"]
    return scope["type"] == "http" and (scope["method"] == "POST" or path.endswith("/audio"))


def _unknown(key: str | None) -> Response:
    message = (
        "an API key is required: send the header authorization: Bearer KEY"
        if key is None
        else "unknown API key"
    )
    headers = {"WWW-Authenticate": "Bearer" if key is None else 'Bearer error="invalid_token"'}
    return error_response(401, message, code="invalid_api_key", headers=headers)

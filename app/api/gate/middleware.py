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
from contextlib import ExitStack
from fnmatch import fnmatchcase
from ipaddress import ip_address
from time import perf_counter
from typing import Final
from uuid import uuid4

from fastapi import Security
from fastapi.security import HTTPBearer
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Info
from prometheus_client.process_collector import ProcessCollector
from starlette.datastructures import Headers
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import HTTPConnection
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from app.api.errors import CLIENT_CLOSED, error_response, speech_error_response
from app.api.gate.admission import Admission, Keyring, address_of, client_of, sent_key
from app.api.gate.limits import (
    FIRST_ERROR,
    ID_HEADER,
    UPLOADS,
    LimitedBody,
    SentAnswer,
    head_refusal,
)
from app.api.schemas import error_responses
from app.engine.errors import SpeechError
from app.logs import REQUEST_ID
from app.settings import Settings
from app.studio.route import OPEN_PATHS
from app.version import VERSION

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


_REQUEST_HEADERS = ("authorization", "content-type", "x-request-id")
_SCHEMES = frozenset({"http", "https"})
_METHODS = ("GET", "HEAD", "POST", "DELETE")
_EXPOSED = (
    "x-request-id",
    "X-Seed",
    "X-Ignored",
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
        self._app, self._settings, self._keyring = app, settings, keyring
        self._admission, self._metrics = admission, metrics
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
        except Exception as error:  # of any route
            if answer.stalled:
                path = scope["path"][:_LONGEST_PATH]
                log.warning("%s: cut off, as the client does not read", path)
            else:
                failed = error
                answer.status = answer.status or _SERVER_ERROR
        finally:
            self._log(scope, answer, perf_counter() - began_s)
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
        """Refuse a request or forward it."""
        connection = HTTPConnection(scope)
        with ExitStack() as work:
            connection.state.held = work
            refusal = await self._refusal(connection, work)
            if refusal is None and scope["type"] == "http":
                receive = connection.state.body = self._limited(scope, receive)
            await (refusal or self._app)(scope, receive, send)

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
            await self._admission.count(client)
            if _is_work(connection.scope):
                work.enter_context(await self._admission.work(client))
        except SpeechError as error:
            return speech_error_response(error)
        return None

    def _limited(self, scope: Scope, receive: Receive) -> LimitedBody:
        """Return the body of an HTTP request within its limits."""
        settings, upload = self._settings, (scope["method"], scope["path"]) in UPLOADS
        limit_bytes = settings.max_upload_bytes if upload else settings.max_body_bytes
        return LimitedBody(receive, Headers(scope=scope), limit_bytes, settings.body_timeout_s)

    def _log(self, scope: Scope, answer: SentAnswer, seconds: float) -> None:
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
    request_id, sent_id = uuid4().hex, Headers(scope=scope).get(ID_HEADER, "")
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
    """Return the error response for a missing or unknown key."""
    message = (
        "an API key is required: send the header authorization: Bearer KEY"
        if key is None
        else "unknown API key"
    )
    headers = {"WWW-Authenticate": "Bearer" if key is None else 'Bearer error="invalid_token"'}
    return error_response(401, message, code="invalid_api_key", headers=headers)

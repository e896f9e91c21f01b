"""Allowed hosts and origins: which names and which web pages may call the service from a browser.

The check of `Host` protects against DNS rebinding where no API key is required: a foreign web page
can have its own host name resolve to this machine. To the browser the page and the service are then
one origin, and only `Host` tells them apart. Addresses and `localhost` are always allowed: neither
can be made to resolve elsewhere. Where keys are required such a page has none, and any host is
allowed.
"""

import re
import socket
from fnmatch import fnmatchcase
from ipaddress import ip_address

from starlette.datastructures import Headers
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import HTTPConnection
from starlette.responses import Response
from starlette.types import ASGIApp

from app.api.errors import error_response

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

"""Web pages that may call the service from a browser: their origins, and CORS for them."""

from starlette.datastructures import Headers
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import HTTPConnection
from starlette.responses import Response
from starlette.types import ASGIApp

from app.api.errors import error_response

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

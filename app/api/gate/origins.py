"""Which web pages may use the service: those of this very host, and those that the operator names.

Browsers say where a page is from, and only they. Without this, any page that somebody opens could
speak, listen and upload voices with the service on that person's own machine.
"""

from starlette.datastructures import Headers
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import HTTPConnection
from starlette.responses import Response
from starlette.types import ASGIApp

from app.api.errors import error_response

_REQUEST_HEADERS = ("authorization", "content-type", "x-request-id")
_SCHEMES = frozenset({"http", "https"})
_METHODS = ("GET", "HEAD", "POST", "DELETE")
_EXPOSED = (
    "x-request-id",
    "X-Seed",
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
    "X-TTFA-Expected-Ms",
    "X-RTF",
    "X-Prompt-Tokens",
    "X-Completion-Tokens",
    "Server-Timing",
    "Retry-After",
)


class Origins:
    """The pages that the operator names."""

    def __init__(self, listed: str) -> None:
        """Take them as the setting has them: with commas, * for every page."""
        self.named = frozenset(filter(None, map(str.strip, listed.split(","))))

    def allow(self, connection: HTTPConnection) -> bool:
        """Tell whether a request may come from where it comes from; no browser, no origin.

        An origin that hides where it is from, `null`, is nobody's.
        """
        sent = connection.headers.getlist("origin")
        if not sent or "*" in self.named or set(sent) <= self.named:
            return True
        scheme, _, host = sent[0].lower().partition("://")
        own = connection.headers.get("host", "").lower()
        return len(sent) == 1 and scheme in _SCHEMES and bool(host) and host == own


class CrossOrigin(CORSMiddleware):
    """Lets named pages read answers and their headers; refuses others in the one shape."""

    def __init__(self, app: ASGIApp, origins: Origins) -> None:
        super().__init__(
            app,
            allow_origins=origins.named,
            allow_methods=_METHODS,
            allow_headers=_REQUEST_HEADERS,
            expose_headers=_EXPOSED,
        )

    def preflight_response(self, request_headers: Headers) -> Response:
        """Answer a browser that asks before the request itself."""
        answer = super().preflight_response(request_headers)
        if answer.status_code == 200:
            return answer
        return error_response(403, bytes(answer.body).decode(), code="cors")


def foreign_origin() -> Response:
    """Return what a page of elsewhere is told."""
    return error_response(403, "this origin is not allowed", param="origin", code="origin")

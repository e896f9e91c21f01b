"""The access middleware for HTTP and WebSockets: head, origin, host, API key, rate limit.

Every path that is not listed here requires a key, so a new route is never open by accident.
"""

from contextlib import ExitStack

from fastapi import Security
from fastapi.security import HTTPBearer
from starlette.requests import HTTPConnection
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from app.api.errors import error_response, speech_error_response
from app.api.gate.access_log import HEADER
from app.api.gate.admission import Admission, client_of
from app.api.gate.keys import Keyring, sent_key
from app.api.gate.limits import head_refusal
from app.api.gate.origins import Hosts, Origins, foreign_origin, unknown_host
from app.api.responses import error_responses
from app.engine.errors import SpeechError
from app.studio.route import OPEN_PATHS

PROBES = frozenset({"/health", "/ready"})
"""Paths that need no key and count towards no limit."""

_DOCUMENTS = OPEN_PATHS | {"/openapi.json"}
_METRICS = "/metrics"

GATE_RESPONSES = error_responses(
    _400="The head declares two lengths of the body.",
    _401="No API key, or an unknown one.",
    _403="The origin or the host name is not allowed.",
    _408="The body was sent too slowly.",
    _422="A header is invalid; `param` names it.",
    _429="Too many requests, in total or at once; retry in Retry-After seconds.",
    _431="The request line and headers are too large.",
)
"""Responses of the middlewares, for every route but the probes."""

BEARER_KEY = Security(
    HTTPBearer(auto_error=False, description="API key, if the service requires one.")
)
"""Documents the key in OpenAPI; the middleware has checked it already."""


class GateMiddleware:
    """ASGI middleware that refuses requests or sets `request.state.owner`."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        keyring: Keyring,
        hosts: Hosts,
        origins: Origins,
        admission: Admission,
        open_metrics: bool = False,
    ) -> None:
        self._app = app
        self._keyring, self._hosts = keyring, hosts
        self._origins, self._admission = origins, admission
        self._open = PROBES | _DOCUMENTS | ({_METRICS} if open_metrics else frozenset())

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request: forward or refuse it."""
        if scope["type"] not in {"http", "websocket"}:
            await self._app(scope, receive, send)
            return
        connection = HTTPConnection(scope)
        with ExitStack() as work:
            connection.state.held = work
            refusal = await self._refusal(connection, work)
            await (refusal or self._app)(scope, receive, send)

    async def _refusal(self, connection: HTTPConnection, work: ExitStack) -> Response | None:
        """Return the error response for a request that is refused, or None."""
        if (refusal := head_refusal(connection.scope)) is not None:
            return refusal
        if not self._origins.allow(connection):
            return foreign_origin()
        if connection.state.client_id is None:
            message = f"{HEADER}: up to 200 of A-Z a-z 0-9 . _ : / + = @ -"
            return error_response(422, message, param=HEADER, code="invalid_value")
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

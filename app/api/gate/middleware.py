"""The door: by a known name, from an allowed page, with a key, not too often; HTTP and WebSockets.

What is not named here needs a key, so that a route which is added later is not open by accident.
"""

from contextlib import ExitStack

from fastapi import Security
from fastapi.security import HTTPBearer
from starlette.requests import HTTPConnection
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from app.api.answers import error_answers
from app.api.errors import error_response, speech_error_response
from app.api.gate.admission import Admission
from app.api.gate.askers import asker
from app.api.gate.heads import head_refusal
from app.api.gate.hosts import Hosts, unknown_host
from app.api.gate.keys import Keyring, sent_key
from app.api.gate.origins import Origins, foreign_origin
from app.api.gate.request_id import HEADER
from app.engine.errors import SpeechError

PROBES = frozenset({"/health", "/ready"})
"""Read by machines that have no key, and never counted."""

_DOCUMENTS = frozenset({"/docs", "/docs/oauth2-redirect", "/redoc", "/openapi.json"})
_METRICS = "/metrics"

GATE_ANSWERS = error_answers(
    _400="The head tells two lengths of the body.",
    _401="No key, or one that is not known here.",
    _403="A page of another origin asks, or the service is called by a name that is not its own.",
    _408="The body came too slowly.",
    _422="A header is wrong; `param` names it.",
    _429="Too often, or too much at once; come back in Retry-After seconds.",
    _431="The head is too large.",
)
"""What any route but the probes may answer besides its own."""

SENDS_KEY = Security(
    HTTPBearer(auto_error=False, description="A key, where the service asks for one.")
)
"""Says in the OpenAPI document how a key is sent; the gate has read it by then."""


class Gate:
    """Lets in who may come in, and names them in `request.state.owner`."""

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
        """Stand before an application.

        Args:
            app: What is behind.
            keyring: The keys that may be used.
            hosts: The names that it may be called by where there are none.
            origins: The pages that may use it.
            admission: Who may do how much.
            open_metrics: Whether `/metrics` needs no key.
        """
        self._app = app
        self._keyring, self._hosts = keyring, hosts
        self._origins, self._admission = origins, admission
        self._open = PROBES | _DOCUMENTS | ({_METRICS} if open_metrics else frozenset())

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or refuse it."""
        if scope["type"] not in {"http", "websocket"}:
            await self._app(scope, receive, send)
            return
        connection = HTTPConnection(scope)
        with ExitStack() as work:
            refusal = await self._refusal(connection, work)
            await (refusal or self._app)(scope, receive, send)

    async def _refusal(self, connection: HTTPConnection, work: ExitStack) -> Response | None:
        """Return why somebody may not come in; who may and works is at work in ``work``."""
        if (bad := head_refusal(connection.scope)) is not None:
            return bad
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
            who = asker(connection)
            await self._admission.count(who)
            if _works(connection.scope):
                work.enter_context(self._admission.work(who))
        except SpeechError as error:
            return speech_error_response(error)
        return None


def _works(scope: Scope) -> bool:
    """Tell whether a request makes something; in a WebSocket, its responses do."""
    path: str = scope["path"]
    return scope["type"] == "http" and (scope["method"] == "POST" or path.endswith("/audio"))


def _unknown(key: str | None) -> Response:
    """Return what somebody without a key that is known here is told."""
    message = (
        "send a key, with the header authorization: Bearer KEY"
        if key is None
        else "this key is not known here"
    )
    headers = {"WWW-Authenticate": "Bearer" if key is None else 'Bearer error="invalid_token"'}
    return error_response(401, message, code="invalid_api_key", headers=headers)

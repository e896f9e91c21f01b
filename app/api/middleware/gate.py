"""The gate that every request passes: its id, access and limits, in this order.

Every path that is not open requires a key, so a new route is never open by accident.
"""

import asyncio
import ctypes
from contextlib import ExitStack
from time import perf_counter
from typing import Final

from starlette.datastructures import Headers
from starlette.requests import HTTPConnection
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from app.api.errors import CLIENT_CLOSED, error_response, speech_error_response
from app.api.middleware.access.clients import client_of
from app.api.middleware.access.hosts import Hosts, unknown_host
from app.api.middleware.access.keys import Keyring, sent_key
from app.api.middleware.access.origins import CrossOriginMiddleware, Origins, foreign_origin
from app.api.middleware.access_log import LONGEST_PATH, log, log_request
from app.api.middleware.body import LimitedBody
from app.api.middleware.head import head_refusal
from app.api.middleware.limits import Admission, shutting_down
from app.api.middleware.metrics import HttpMetrics
from app.api.middleware.request_ids import ID_HEADER, identify
from app.api.middleware.rules import METRICS_PATH, PROBES, GateRules
from app.api.middleware.send import MonitoredSend
from app.engine.errors import SpeechError
from app.settings import Settings

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
        rules: GateRules,
    ) -> None:
        self._app = app
        self._settings = settings
        self._keyring = keyring
        self._admission = admission
        self._metrics = metrics
        self._hosts = Hosts(settings.host, settings.allowed_hosts)
        self._origins = Origins(settings.origins)
        self._rules = rules
        self._admit: ASGIApp = self._admitted
        if self._origins.named:
            self._admit = CrossOriginMiddleware(self._admitted, self._origins)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request, log it, and turn an uncaught exception into a 500."""
        if scope["type"] not in {"http", "websocket"}:
            await self._app(scope, receive, send)
            return
        identify(scope)
        answer = MonitoredSend(send, scope["state"], self._settings.stall_timeout_s)
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
                path = scope["path"][:LONGEST_PATH]
                log.warning("%s: cut off, as the client does not read", path)
            else:
                failed = error
                answer.status = answer.status or _SERVER_ERROR
        finally:
            log_request(self._metrics, scope, answer, perf_counter() - began_s)
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

    def _count_cut(self, scope: Scope, answer: MonitoredSend) -> None:
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
        if path in PROBES or path in self._rules.open_paths:
            return None
        if self._keyring:
            key = sent_key(connection, self._rules.key_headers)
            owner = None if key is None else self._keyring.owner(key)
            if owner is None:
                return _unknown(key)
            connection.state.owner = owner
        try:
            client = client_of(connection)
            if path != METRICS_PATH:  # as often as Prometheus asks
                await self._admission.count(client)
            if _is_work(connection.scope):
                work.enter_context(await self._admission.work(client))
        except SpeechError as error:
            return speech_error_response(error)
        return None

    def _limited(self, scope: Scope, receive: Receive) -> LimitedBody:
        """Return the body of an HTTP request within its limits."""
        settings = self._settings
        upload = (scope["method"], scope["path"]) in self._rules.uploads
        limit_bytes = settings.max_upload_bytes if upload else settings.max_body_bytes
        return LimitedBody(receive, Headers(scope=scope), limit_bytes, settings.body_timeout_s)


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

"""A connection to the server: how long the head of a request may take, and how many there may be.

uvicorn bounds neither: whoever sends a header a byte at a time would keep a connection for ever.

One address may have its share of the connections. What is more than may be is still heard in a
small room of its own, where the probes alone are answered: a service that is merely full is not to
be restarted.
"""

import asyncio
import logging
from collections import deque
from http import HTTPStatus
from typing import Any

import h11
from starlette.datastructures import MutableHeaders
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from app.api.errors import error_response
from app.api.gate.askers import network_of
from app.api.gate.middleware import PROBES
from app.engine.serving.shares import share
from app.websockets import read_little

log = logging.getLogger(__name__)

_RETRY_S = 5
_PROBE_CONNECTIONS = 32
"""Room for those that are too many; of more than these, the one that came first goes."""

_PROBE_TIMEOUT_S = 2.0


class Connection(H11Protocol):
    """Closes a connection whose next request does not come, and bounds those that are too many.

    Between two requests uvicorn's own time of an idle connection holds, until the first byte of
    the next one. A WebSocket is none of this any more once its handshake is read, but it counts.
    """

    header_timeout_s: float
    max_connections: int
    probing: "deque[Connection]"
    _late: asyncio.TimerHandle | None = None

    def connection_made(  # type: ignore[override]  # as in uvicorn
        self, transport: asyncio.Transport
    ) -> None:
        """Begin to wait for a request; one too many may ask how the service is, and soon."""
        super().connection_made(transport)
        read_little(transport)
        if self._is_too_many():
            self._enter_room_of_probes()
        self._wait()

    def data_received(self, data: bytes) -> None:
        """Take what the client sent."""
        super().data_received(data)
        self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait no more."""
        self._stop_waiting()
        if self in self.probing:
            self.probing.remove(self)
        super().connection_lost(exc)

    def handle_websocket_upgrade(self, event: h11.Request) -> None:
        """Let a WebSocket take the connection over, if that is not one too many."""
        if self in self.probing:
            self._refuse(self._too_many())
            return
        super().handle_websocket_upgrade(event)

    def _is_too_many(self) -> bool:
        """Tell whether there are too many without those in the room for probes, of all or of its.

        uvicorn's set has WebSockets too, which are protocols of another kind.
        """
        others = [one for one in self.connections if one not in self.probing]
        open_ = [getattr(one, "client", None) for one in others]
        own = sum(_address(client) == _address(self.client) for client in open_)
        return len(open_) > self.max_connections or own > share(self.max_connections)

    def _enter_room_of_probes(self) -> None:
        room, answer = self.probing, self.app
        self.header_timeout_s = min(self.header_timeout_s, _PROBE_TIMEOUT_S)

        async def probes_alone(scope: Scope, receive: Receive, send: Send) -> None:
            async def send_last(message: Message) -> None:
                if message["type"] == "http.response.start":
                    MutableHeaders(scope=message)["connection"] = "close"
                await send(message)

            wanted: Any = answer if scope["path"] in PROBES else self._too_many()
            await wanted(scope, receive, send_last)

        self.app = probes_alone
        room.append(self)
        if len(room) > _PROBE_CONNECTIONS:
            room.popleft()._leave_room_of_probes()

    def _leave_room_of_probes(self) -> None:
        if self.conn.our_state is h11.IDLE and not self.transport.is_closing():
            self._refuse(self._too_many())

    def _too_many(self) -> Response:
        """Return what is told on a connection that is one too many."""
        many = len(self.connections) - len(self.probing)
        log.warning("refused %s: %d connections are open", self.client, many)
        message = (
            f"{many} connections are open, and no more may, or no more of yours;"
            f" come back in {_RETRY_S} s"
        )
        headers = {"Retry-After": str(_RETRY_S)}
        return error_response(503, message, code="too_many_connections", headers=headers)

    def _wait(self) -> None:
        """Wait for the next request, for so long from its first byte; or no more, if it is here.

        What is left of a body that was answered before its end counts as its beginning.
        """
        answered = self.conn.our_state is h11.DONE and self.conn.their_state is h11.SEND_BODY
        if self.conn.their_state is not h11.IDLE and not answered:
            self._stop_waiting()
        elif self._late is None:
            self._late = self.loop.call_later(self.header_timeout_s, self._give_up)

    def _stop_waiting(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None

    def _give_up(self) -> None:
        if self.transport.is_closing():
            return
        if self in self.probing:
            self._leave_room_of_probes()
            return
        sent, _ = self.conn.trailing_data
        if self.conn.our_state is not h11.IDLE or not sent:
            self.transport.close()  # answered; or a browser's spare, which expects no answer
            return
        log.warning("gave up %s: no whole head of a request", self.client)
        message = f"the headers took longer than {self.header_timeout_s:g} s"
        self._refuse(error_response(408, message, code="header_timeout"))

    def _refuse(self, answer: Response) -> None:
        """Answer what is no whole request, and close."""
        head = h11.Response(
            status_code=answer.status_code,
            headers=[*answer.raw_headers, (b"connection", b"close")],
            reason=HTTPStatus(answer.status_code).phrase,
        )
        for event in (head, h11.Data(data=bytes(answer.body)), h11.EndOfMessage()):
            self.transport.write(self.conn.send(event) or b"")
        self.transport.close()


def bounded(header_timeout_s: float, max_connections: int) -> type[Connection]:
    """Return the protocol that a server makes its connections of.

    Args:
        header_timeout_s: How long a client may take for the head of a request.
        max_connections: How many there may be, WebSockets too.
    """
    bounds = {
        "header_timeout_s": header_timeout_s,
        "max_connections": max_connections,
        "probing": deque[Connection](),
    }
    return type("BoundedConnection", (Connection,), bounds)


def _address(client: tuple[str, int] | None) -> str:
    """Return whose share a connection takes."""
    return network_of(client[0]) if client else ""

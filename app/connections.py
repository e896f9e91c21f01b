"""A connection to the server: how long the head of a request may take, and how many there may be.

uvicorn bounds neither: whoever sends a header a byte at a time would keep a connection for ever.
"""

import asyncio
import logging
from http import HTTPStatus

import h11
from starlette.responses import Response
from uvicorn.protocols.http.h11_impl import H11Protocol

from app.api.errors import error_response
from app.websockets import read_little

log = logging.getLogger(__name__)

_RETRY_S = 5


class Connection(H11Protocol):
    """Closes a connection whose next request does not come, and one that is one too many.

    Between two requests uvicorn's own time of an idle connection holds, until the first byte of
    the next one. A WebSocket is none of this any more once its handshake is read.
    """

    header_timeout_s: float
    max_connections: int
    _late: asyncio.TimerHandle | None = None

    def connection_made(  # type: ignore[override]  # as in uvicorn
        self, transport: asyncio.Transport
    ) -> None:
        """Begin to wait for a request, or refuse the client."""
        super().connection_made(transport)
        read_little(transport)
        if len(self.connections) > self.max_connections:
            log.warning("refused %s: %d connections are open", self.client, self.max_connections)
            message = f"{self.max_connections} connections are open; come back in {_RETRY_S} s"
            headers = {"Retry-After": str(_RETRY_S)}
            self._refuse(error_response(503, message, code="too_many_connections", headers=headers))
            return
        self._wait()

    def data_received(self, data: bytes) -> None:
        """Take what the client sent."""
        super().data_received(data)
        self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait no more."""
        self._stop_waiting()
        super().connection_lost(exc)

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
    bounds = {"header_timeout_s": header_timeout_s, "max_connections": max_connections}
    return type("BoundedConnection", (Connection,), bounds)

"""The number of open connections, of which each address has its share."""

from collections import Counter, deque
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Any

from app.api.middleware.access.clients import network_of
from app.api.middleware.limits import RETRY_S
from app.engine.admission.quota import share
from app.engine.errors import Unavailable


class TooManyConnections(Unavailable):
    """All connections, or all of the client's, are in use."""

    code = "too_many_connections"


class OpenConnections:
    """The connections of a process, of which each address has at most its share."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self.http: Collection[Any] = ()  # with WebSockets, as uvicorn counts them
        self.probe_only: deque[Any] = deque()  # those of them beyond the limit, oldest first
        self._others = Counter[str]()

    def exceeded_by(self, address: str) -> bool:
        """Return whether there are too many, of all or of an address, with one just opened."""
        open_ = self._addresses()
        return len(open_) > self._limit or open_.count(address) > share(self._limit)

    def too_many(self) -> TooManyConnections:
        """Return the error for a connection beyond the limit."""
        return TooManyConnections(
            f"{len(self._addresses())} connections are open, which is the limit for all or for your"
            f" address; retry in {RETRY_S} s",
            retry_after_s=RETRY_S,
        )

    @contextmanager
    def counted(self, address: str) -> Iterator[None]:
        """Count a connection that is not of the HTTP server, for the time of a context."""
        self._others[address] += 1
        try:
            if self.exceeded_by(address):
                raise self.too_many()
            yield
        finally:
            self._others[address] -= 1

    def abort(self) -> None:
        """Abort what is open of the HTTP server, at a shutdown: bytes that no client takes."""
        for one in list(self.http):
            if one.transport is not None:
                one.transport.abort()

    def _addresses(self) -> list[str]:
        """Return the address of each connection; those that may only probe do not count."""
        http = [client_address(one) for one in self.http if one not in self.probe_only]
        return [*http, *self._others.elements()]


def client_address(connection: Any) -> str:
    """Return the address, or IPv6 network, whose share one of uvicorn's connections counts to."""
    client = getattr(connection, "client", None)
    return network_of(client[0]) if client else ""

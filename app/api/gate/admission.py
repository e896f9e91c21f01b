"""Admission control: rate limit and concurrency limit per client, and none once the service drains.

Use it from the event loop only.
"""

import asyncio
import math
import time
from collections import Counter, deque
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address

from limits import RateLimitItemPerMinute
from starlette.requests import HTTPConnection

from app.api.errors import TooManyRequests
from app.engine.errors import EngineNotReady

_IPV6_PREFIX_BITS = 64  # what one home or one rented machine is given, to choose addresses from


def client_of(connection: HTTPConnection) -> str:
    """Return the client of a connection: an owner of API keys, or an address without keys."""
    client = connection.client
    return str(connection.state.owner) or (network_of(client.host) if client else "")


def address_of(host: str) -> IPv4Address | IPv6Address | None:
    """Return the address that a host is, without its zone; None if it is none."""
    try:
        return ip_address(host.partition("%")[0])
    except ValueError:
        return None


@lru_cache(4096)
def network_of(host: str) -> str:
    """Return the address that counts for a host; for IPv6 its /64, as one client has many."""
    address = address_of(host)
    if address is None:
        return host
    if not isinstance(address, IPv6Address):
        return str(address)
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(IPv6Network((int(address), _IPV6_PREFIX_BITS), strict=False))


_WINDOW_S = 60.0
_MANY_CLIENTS = 4096  # from here on, those without a recent request are forgotten
_POLL_S = 0.02
_WORK_RETRY_S = 1


class Admission:
    """Counts requests and work in progress of each client.

    A *client* is an owner of API keys, or an address if no keys are required.

    Args:
        rate_per_minute: Requests of a client in any 60 s; 0 is unlimited.
        max_concurrent: Speeches and uploads of a client at once; 0 is unlimited.
    """

    def __init__(self, rate_per_minute: int = 0, max_concurrent: int = 0) -> None:
        self._rate = RateLimitItemPerMinute(rate_per_minute) if rate_per_minute else None
        self._max_concurrent = max_concurrent
        # By the monotonic clock: a wall clock that is set back would refuse a client until then.
        self._times: dict[str, deque[float]] = {}
        self._working: Counter[str] = Counter()
        self._closed = False

    @property
    def working(self) -> int:
        """Number of speeches and uploads in progress, of all clients."""
        return self._working.total()

    async def count(self, client: str) -> None:
        """Count a request towards the rate limit.

        Raises:
            TooManyRequests: The limit is exceeded.
        """
        if self._rate is None or (wait_s := await self._wait_s(client)) is None:
            return
        wait_s = max(1, math.ceil(wait_s))
        raise TooManyRequests(
            f"the limit is {self._rate.amount} requests a minute; retry in {wait_s} s",
            retry_after_s=wait_s,
        )

    async def _wait_s(self, client: str) -> float | None:
        """Count a request; return None if the rate limit allows it, else the seconds to wait."""
        assert self._rate is not None
        now_s, most = time.monotonic(), self._rate.amount
        if len(self._times) > _MANY_CLIENTS:
            recent = {one: at for one, at in self._times.items() if at[-1] > now_s - _WINDOW_S}
            self._times = recent
        times = self._times.setdefault(client, deque(maxlen=most))
        if len(times) == most and (wait_s := times[0] + _WINDOW_S - now_s) > 0:
            return wait_s
        times.append(now_s)
        return None

    async def work(self, client: str) -> AbstractContextManager[None]:
        """Return a context, to be entered at once, that counts work in progress until it ends."""
        self.check_open()
        self._check_work(client)
        return self._counted(client)

    def _check_work(self, client: str) -> None:
        """Check that a client's work may begin."""
        if self._max_concurrent and self._working[client] >= self._max_concurrent:
            raise self._too_much_work()

    def _too_much_work(self) -> TooManyRequests:
        return TooManyRequests(
            f"the limit is {self._max_concurrent} requests at once; wait for one of them",
            retry_after_s=_WORK_RETRY_S,
        )

    @contextmanager
    def _counted(self, client: str) -> Iterator[None]:
        self._working[client] += 1
        try:
            yield
        finally:
            self._working[client] -= 1
            if not self._working[client]:
                del self._working[client]

    def check_open(self) -> None:
        """Check that work may begin.

        Raises:
            EngineNotReady: The service is shutting down.
        """
        if self._closed:
            raise EngineNotReady("not ready: it is shutting down", retry_after_s=5)

    async def close(self, timeout_s: float) -> None:
        """Refuse new work, and wait until all work is done or the timeout has passed."""
        self._closed = True
        ends_s = time.monotonic() + timeout_s
        while self.working and time.monotonic() < ends_s:
            await asyncio.sleep(_POLL_S)

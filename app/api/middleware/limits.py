"""Limits of a client: requests a minute, work at once, and speeches that are begun and left.

Use the counters from the event loop only.
"""

import asyncio
import math
import time
from collections import Counter, deque
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

from limits import RateLimitItemPerMinute

from app.api.errors import TooManyRequests
from app.engine.errors import EngineNotReady

RETRY_S = 5
_WINDOW_S = 60.0
_MANY_CLIENTS = 4096  # from here on, those without a recent request are forgotten
_POLL_S = 0.02
_WORK_RETRY_S = 1

MOST_CUTS = 200.0
CUTS_A_SECOND = 20.0
"""How many speeches a client may begin and leave at once, and how many a second after that."""


class Admission:
    """Counts requests and work in progress of each client: an owner of keys, or an address.

    The rate holds in any 60 s, and speeches and uploads are work; a limit of 0 is none.
    """

    def __init__(self, rate_per_minute: int = 0, max_concurrent: int = 0) -> None:
        self._rate = RateLimitItemPerMinute(rate_per_minute) if rate_per_minute else None
        self._max_concurrent = max_concurrent
        # By the monotonic clock: a wall clock that is set back would refuse a client until then.
        self._times: dict[str, deque[float]] = {}
        self._working: Counter[str] = Counter()
        self._cuts: dict[str, tuple[float, float]] = {}  # how many of late, as of a time
        self._closed = False

    @property
    def working(self) -> int:
        """Number of speeches and uploads in progress, of all clients."""
        return self._working.total()

    async def count(self, client: str) -> None:
        """Count a request towards the rate limit; raises TooManyRequests if it is exceeded."""
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
        now_s = time.monotonic()
        most = self._rate.amount
        if len(self._times) > _MANY_CLIENTS:
            recent = {one: at for one, at in self._times.items() if at[-1] > now_s - _WINDOW_S}
            self._times = recent
        times = self._times.setdefault(client, deque(maxlen=most))
        if len(times) == most and (wait_s := times[0] + _WINDOW_S - now_s) > 0:
            return wait_s
        times.append(now_s)
        return None

    def cut(self, client: str) -> None:
        """Count a speech that its client has left."""
        if len(self._cuts) > _MANY_CLIENTS:
            self._cuts = {one: at for one, at in self._cuts.items() if self._cuts_of(one) > 0}
        self._cuts[client] = self._cuts_of(client) + 1, time.monotonic()

    def check_cuts(self, client: str) -> None:
        """Raise TooManyRequests if a client begins and leaves too many speeches.

        Each takes some time of all workers, though nobody hears it.
        """
        if (more := self._cuts_of(client) - MOST_CUTS) > 0:
            wait_s = max(1, math.ceil(more / CUTS_A_SECOND))
            raise TooManyRequests(
                f"too many requests of yours were left before their answers were complete; retry in"
                f" {wait_s} s",
                retry_after_s=wait_s,
            )

    def _cuts_of(self, client: str) -> float:
        count, at_s = self._cuts.get(client, (0.0, 0.0))
        return max(0.0, count - CUTS_A_SECOND * (time.monotonic() - at_s))

    async def work(self, client: str) -> AbstractContextManager[None]:
        """Return a context, to be entered at once, that counts work in progress until it ends."""
        self.check_open()
        self.check_cuts(client)
        self._check_work(client)
        return self._counted(client)

    def _check_work(self, client: str) -> None:
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

    @property
    def closed(self) -> bool:
        """Whether the service is shutting down."""
        return self._closed

    def check_open(self) -> None:
        """Raise EngineNotReady if the service is shutting down."""
        if self._closed:
            raise shutting_down()

    async def close(self, timeout_s: float) -> None:
        """Refuse new work, and wait until all work is done or the timeout has passed."""
        self._closed = True
        ends_s = time.monotonic() + timeout_s
        while self.working and time.monotonic() < ends_s:
            await asyncio.sleep(_POLL_S)


def shutting_down() -> EngineNotReady:
    """Return the error for a request that comes, or has no answer yet, at a shutdown."""
    return EngineNotReady("not ready: it is shutting down", retry_after_s=RETRY_S)

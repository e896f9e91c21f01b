"""Who may begin something now: how often, how much at once, and nobody once the service closes.

Touched on the event loop alone.
"""

import asyncio
import math
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import ClassVar

from limits import RateLimitItemPerMinute
from limits.aio.storage import MemoryStorage
from limits.aio.strategies import MovingWindowRateLimiter

from app.engine.errors import EngineNotReady, Unavailable

_POLL_S = 0.02
_WORK_RETRY_S = 1


class TooManyRequests(Unavailable):
    """Somebody asks more often, or for more at once, than the operator allows one."""

    code: ClassVar[str] = "rate_limit_exceeded"


class Admission:
    """Counts what everybody asks for and has in work.

    *Who* is an owner of keys, or an address where nobody is asked for one.
    """

    def __init__(self, rate_per_minute: int = 0, max_concurrent: int = 0) -> None:
        """Begin with nothing counted.

        Args:
            rate_per_minute: Requests that one may make in any 60 s; 0 is any number.
            max_concurrent: Pieces of work that one may have at once; 0 is any number.
        """
        self._rate = RateLimitItemPerMinute(rate_per_minute) if rate_per_minute else None
        self._max_concurrent = max_concurrent
        self._window = MovingWindowRateLimiter(MemoryStorage())
        self._working: Counter[str] = Counter()
        self._closed = False

    @property
    def working(self) -> int:
        """How many pieces of work there are, of all."""
        return self._working.total()

    async def count(self, who: str) -> None:
        """Count a request.

        Raises:
            TooManyRequests: It is one too many.
        """
        if self._rate is None or await self._window.hit(self._rate, who):
            return
        window = await self._window.get_window_stats(self._rate, who)
        wait_s = max(1, math.ceil(window.reset_time - time.time()))
        raise TooManyRequests(
            f"{self._rate.amount} requests a minute are allowed; come back in {wait_s} s",
            retry_after_s=wait_s,
        )

    @contextmanager
    def work(self, who: str) -> Iterator[None]:
        """Be at work.

        Raises:
            TooManyRequests: As much as may be is in work already.
            EngineNotReady: The service is closing.
        """
        self.check_open()
        if self._max_concurrent and self._working[who] >= self._max_concurrent:
            raise TooManyRequests(
                f"{self._max_concurrent} requests may be in work at once; wait for one of them",
                retry_after_s=_WORK_RETRY_S,
            )
        self._working[who] += 1
        try:
            yield
        finally:
            self._working[who] -= 1
            if not self._working[who]:
                del self._working[who]

    def check_open(self) -> None:
        """Do nothing if work may begin.

        Raises:
            EngineNotReady: The service is closing.
        """
        if self._closed:
            raise EngineNotReady("not ready: it is shutting down", retry_after_s=5)

    async def close(self, timeout_s: float) -> None:
        """Let no more work begin, and wait until all of it is done or the time is over."""
        self._closed = True
        ends_s = time.monotonic() + timeout_s
        while self.working and time.monotonic() < ends_s:
            await asyncio.sleep(_POLL_S)

"""State that several processes share, in Redis: its connection, and whether Redis answers.

Used only where `TTS_STATE` names a Redis; nothing else imports `redis`. A process keeps working
while Redis is away: each user of the state decides what then holds.
"""

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from time import monotonic
from typing import Any, TypeVar

from prometheus_client import CollectorRegistry, Counter, Gauge
from redis import Redis as BlockingRedis
from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import AuthenticationError, RedisError, ResponseError

_T = TypeVar("_T")

KEY_PREFIX = "valle:1:"
"""Of every key. The number changes with the meaning of what is stored, so that processes of two
versions can share a Redis."""

_TIMEOUT_S = 1.0
_CONNECTIONS = 16
_CHECK_S = 0.5
_STOP_S = 5.0
_LOG_EVERY_S = 60.0

_REFUSALS = (AuthenticationError, ResponseError)

log = logging.getLogger(__name__)


class StateAway(Exception):
    """Redis does not answer."""


class StateRefused(StateAway):
    """Redis answers with an error: a wrong password, no such database, a key of another type."""


def ask(url: str) -> None:
    """Raise StateRefused or StateAway unless Redis answers a ping."""
    with BlockingRedis.from_url(
        url, socket_timeout=_TIMEOUT_S, socket_connect_timeout=_TIMEOUT_S
    ) as client:
        try:
            client.ping()
        except _REFUSALS as error:
            raise StateRefused(str(error)) from error
        except (RedisError, OSError) as error:
            raise StateAway(str(error)) from error


class SharedState:
    """A connection to Redis: ``redis://user:password@host:6379/0``, ``rediss://``, or ``unix://``.

    Once a command has failed, further ones are not tried until Redis answers a ping again, so that
    a Redis that hangs delays one request and not all. Use it from one event loop.
    """

    def __init__(self, url: str, *, closed_if_away: bool, registry: CollectorRegistry) -> None:
        self.redis: Redis = Redis.from_url(
            url,
            socket_timeout=_TIMEOUT_S,
            socket_connect_timeout=_TIMEOUT_S,
            retry=Retry(NoBackoff(), 1),  # a connection may have died while it was idle
        )
        self.closed_if_away = closed_if_away  # whether what needs the state is refused then
        self.available = True
        self.on_return: list[Callable[[], None]] = []  # called when Redis answers again
        # Awaited before the connection is closed, as is what `spawn` was given.
        self.on_stop: list[Callable[[], Awaitable[None]]] = []
        self._places = asyncio.Semaphore(_CONNECTIONS)
        self._tasks: set[asyncio.Task[None]] = set()
        self._repeated: list[tuple[float, Callable[[], Awaitable[None]]]] = []
        self._repeating: list[asyncio.Task[None]] = []
        self.repeat(_CHECK_S, self._ping)
        self._logged_s = -math.inf
        up = Gauge("tts_state_up", "Whether Redis answers.", registry=registry)
        up.set_function(lambda: float(self.available))
        self._failures = Counter(
            "tts_state_failures",
            "Commands that Redis did not answer or refused.",
            registry=registry,
        )

    @property
    def summary(self) -> str:
        """What `/health` says of the state."""
        if self.available:
            return "redis"
        return f"redis away, limits {'closed' if self.closed_if_away else 'open'}"

    def repeat(self, every_s: float, work: Callable[[], Awaitable[None]]) -> None:
        """Have a function called again and again from the start to the stop."""
        self._repeated.append((every_s, work))

    async def start(self) -> None:
        """Ask whether Redis answers, and go on asking."""
        await self._ping()
        self._repeating = [asyncio.create_task(_repeat(*one)) for one in self._repeated]

    async def stop(self) -> None:
        """Let users of the state finish, for a few seconds, and close the connection."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_STOP_S):
                for finish in self.on_stop:
                    await finish()
                await asyncio.gather(*self._tasks)
        for task in self._repeating:
            task.cancel()
        await self.redis.aclose()

    def spawn(self, work: Coroutine[None, None, None]) -> None:
        """Run a coroutine in the background."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def run(self, command: Callable[..., Awaitable[_T]], *args: Any, **kwargs: Any) -> _T:
        """Return the result of a command, a method of `redis` or a caller of such.

        Raises StateRefused if Redis answers with an error (others' commands may well succeed),
        StateAway if it does not answer.
        """
        try:
            async with self._places:
                if not self.available:
                    raise StateAway
                return await command(*args, **kwargs)
        except ResponseError as error:
            self._failures.inc()
            if monotonic() - self._logged_s >= _LOG_EVERY_S:
                self._logged_s = monotonic()
                of = kwargs.get("keys") or args[:1]
                log.error("Redis refuses a command (%s): %s", ", ".join(map(str, of)), error)
            raise StateRefused(str(error)) from error
        except (RedisError, OSError, TimeoutError) as error:
            self._failures.inc()
            self._lost(error)
            raise StateAway from error

    async def _ping(self) -> None:
        try:
            await self.redis.ping()  # type: ignore[misc]  # the stub is of both kinds of client
        except (RedisError, OSError, TimeoutError) as error:
            self._lost(error)
            return
        if not self.available:
            self.available = True
            log.warning("Redis answers again: state is shared")
            for notify in self.on_return:
                notify()

    def _lost(self, error: Exception) -> None:
        if self.available:
            self.available = False
            held = "requests are refused" if self.closed_if_away else "each process counts alone"
            said = f"does not answer ({type(error).__name__})"
            if isinstance(error, _REFUSALS):
                said = f"refuses us: {error}"
            log.error("Redis %s: %s until it answers", said, held)


async def _repeat(every_s: float, work: Callable[[], Awaitable[None]]) -> None:
    while True:
        await asyncio.sleep(every_s)
        await work()

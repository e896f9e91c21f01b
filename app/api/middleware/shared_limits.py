"""Limits of a client over all processes that share a Redis.

Requests are counted in a moving window of the package `limits`. Work in progress holds *leases*,
which the process renews and which lapse if it dies.
"""

import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from uuid import uuid4

from limits.aio.storage import RedisStorage
from limits.aio.strategies import MovingWindowRateLimiter

from app.api.errors import StateUnavailable
from app.api.middleware.limits import Admission
from app.storage.shared_state import KEY_PREFIX, SharedState, StateAway, StateRefused

LEASE_S = 15.0
"""Seconds after which the work of a process that died is no longer counted."""

_RENEW_S = 1.0  # seldom enough to cost nothing; leases that a restart of Redis lost are back soon

# Redis' own clock, as those of the processes differ.
_ACQUIRE = """
local now = redis.call('TIME')
now = now[1] + now[2] / 1e6
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now)
if redis.call('ZCARD', KEYS[1]) >= tonumber(ARGV[2]) then return 0 end
redis.call('ZADD', KEYS[1], now + ARGV[3], ARGV[1])
redis.call('PEXPIRE', KEYS[1], math.ceil(2000 * ARGV[3]))
return 1"""
_RENEW = """
local now = redis.call('TIME')
now = now[1] + now[2] / 1e6
for place = 2, #ARGV do redis.call('ZADD', KEYS[1], now + ARGV[1], ARGV[place]) end
redis.call('PEXPIRE', KEYS[1], math.ceil(2000 * ARGV[1]))"""


class SharedAdmission(Admission):
    """Counts the requests and the work of each client over all processes.

    While Redis is away, either each process counts alone, or what would be counted is refused.
    """

    def __init__(
        self,
        state: SharedState,
        url: str,
        rate_per_minute: int = 0,
        max_concurrent: int = 0,
        *,
        lease_s: float = LEASE_S,
    ) -> None:
        super().__init__(rate_per_minute, max_concurrent)
        self._state = state
        self._lease_s = lease_s
        storage = RedisStorage(
            f"async+{url}",
            implementation="redispy",
            key_prefix=f"{KEY_PREFIX}rate",
            connection_pool=state.redis.connection_pool,  # type: ignore[arg-type]
        )
        self._shared_window = MovingWindowRateLimiter(storage)
        self._acquire = state.redis.register_script(_ACQUIRE)
        self._renew = state.redis.register_script(_RENEW)
        self._leases: dict[str, str] = {}  # token -> key
        state.on_return.append(lambda: state.spawn(self._renew_all()))
        state.repeat(min(_RENEW_S, lease_s / 3), self._renew_all)

    async def _wait_s(self, client: str) -> float | None:
        assert self._rate is not None
        window = self._shared_window
        try:
            if await self._state.run(window.hit, self._rate, client):
                return None
            stats = await self._state.run(window.get_window_stats, self._rate, client)
            return stats.reset_time - time.time()
        except StateAway:
            self._check_open_without_state()
            return await super()._wait_s(client)

    async def work(self, client: str) -> AbstractContextManager[None]:
        """Return a context that counts work in progress, by all processes."""
        if not self._max_concurrent:
            return await super().work(client)
        self.check_open()
        self.check_cuts(client)
        token = uuid4().hex
        key = f"{KEY_PREFIX}work:{client}"
        arguments = [token, self._max_concurrent, self._lease_s]
        try:
            if not await self._state.run(self._acquire, keys=[key], args=arguments):
                raise self._too_much_work()
        except StateAway:
            self._check_open_without_state()
            self._check_work(client)
        return self._leased(client, token, key)

    @contextmanager
    def _leased(self, client: str, token: str, key: str) -> Iterator[None]:
        self._leases[token] = key
        try:
            with self._counted(client):
                yield
        finally:
            del self._leases[token]
            self._state.spawn(self._release(token, key))

    def _check_open_without_state(self) -> None:
        """Check that limits may be held by this process alone."""
        if self._state.closed_if_away:
            raise StateUnavailable(
                "limits cannot be checked now, and this service speaks only within them",
                retry_after_s=1,
            )

    async def _release(self, token: str, key: str) -> None:
        with suppress(StateAway):  # it lapses
            await self._state.run(self._state.redis.zrem, key, token)

    async def _renew_all(self) -> None:
        """Renew all leases; those that a restart of Redis lost are there again."""
        tokens: dict[str, list[str]] = {}
        for token, key in self._leases.items():
            tokens.setdefault(key, []).append(token)
        for key, held in tokens.items():
            try:
                await self._state.run(self._renew, keys=[key], args=[self._lease_s, *held])
            except StateRefused:
                continue
            except StateAway:
                return
            for token in held:
                if token not in self._leases:  # released meanwhile, and perhaps renewed after that
                    await self._release(token, key)

"""The request ids of all processes that share a Redis."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial

from app.api.errors import StateUnavailable
from app.api.reports.request_ids import Entry, RequestIds
from app.storage.shared_state import PREFIX, SharedState, StateAway

_LEASE_S = 15


class SharedRequestIds(RequestIds):
    """The request ids of all processes that share a Redis.

    A claim lapses soon after its process has died. While Redis is away no repetition is known, or
    requests with an id are refused.
    """

    def __init__(self, state: SharedState, keep_s: int) -> None:
        super().__init__()
        self._state, self._keep_s = state, keep_s
        self._renewing: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        state.on_stop.append(self._stop)

    async def _claim(self, key: str, entry: Entry) -> Entry | None:
        redis = self._state.redis
        try:
            found = await self._state.run(
                redis.set, PREFIX + key, json.dumps(entry), nx=True, get=True, ex=_LEASE_S
            )
        except StateAway:
            if self._state.closed_if_away:
                raise StateUnavailable(
                    "whether this request was made before cannot be known now", retry_after_s=1
                ) from None
            return None
        if found is not None:
            return Entry(*json.loads(found))
        if self._renewing is None or self._renewing.done():
            self._renewing = asyncio.create_task(self._renew_while_any())
        return None

    def _end(self, key: str, entry: Entry | None) -> None:
        redis, key = self._state.redis, PREFIX + key
        ending: Callable[[], Awaitable[object]] = partial(redis.delete, key)
        if entry is not None:
            ending = partial(redis.set, key, json.dumps(entry), ex=self._keep_s)
        task = asyncio.create_task(self._quietly(ending))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _renew_while_any(self) -> None:
        await asyncio.sleep(_LEASE_S / 3)
        while self._claims:
            for key, _ in list(self._claims.values()):
                # Never sooner than it does: it may have been kept for longer meanwhile.
                await self._quietly(
                    partial(self._state.redis.expire, PREFIX + key, _LEASE_S, gt=True)
                )
            await asyncio.sleep(_LEASE_S / 3)

    async def _quietly(self, command: Callable[[], Awaitable[object]]) -> None:
        """Run a command, unless Redis is away: then the entry lapses."""
        with suppress(StateAway):
            await self._state.run(command)

    async def _stop(self) -> None:
        if self._renewing is not None:
            self._renewing.cancel()
        await asyncio.gather(*self._tasks)

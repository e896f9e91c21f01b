"""The most recent speeches and request ids of all processes that share a Redis."""

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import Final

from app.api.errors import StateUnavailable
from app.api.history.packing import pack_outcome, unpack_outcome
from app.api.history.recent import Entry, RecentSpeeches
from app.api.history.report import AskedSpeech, Outcome
from app.engine.core import SpeechResult
from app.engine.errors import UnknownSpeech
from app.storage.shared_state import KEY_PREFIX, SharedState, StateAway, StateRefused

log = logging.getLogger(__name__)

_LEASE_S: Final = 15
"""Seconds after which the request id of a process that died can be claimed again."""

_INDEX: Final = ("kept", "kept-bytes")

# Stores a speech, and drops the client's oldest while there are too many or they are too large.
_KEEP = """
local now = redis.call('TIME')
now = now[1] + now[2] / 1e6
local function drop(key)
  redis.call('DEL', key); redis.call('ZREM', KEYS[2], key); redis.call('HDEL', KEYS[3], key)
end
redis.call('SET', KEYS[1], ARGV[1], 'EX', ARGV[2])
redis.call('ZADD', KEYS[2], now, KEYS[1])
redis.call('HSET', KEYS[3], KEYS[1], #ARGV[1])
for _, key in ipairs(redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', now - ARGV[2])) do drop(key) end
local bytes = 0
for _, size in ipairs(redis.call('HVALS', KEYS[3])) do bytes = bytes + size end
while redis.call('ZCARD', KEYS[2]) > tonumber(ARGV[3]) or bytes > tonumber(ARGV[4]) do
  local oldest = redis.call('ZRANGE', KEYS[2], 0, 0)[1]
  bytes = bytes - redis.call('HGET', KEYS[3], oldest)
  drop(oldest)
end
redis.call('EXPIRE', KEYS[2], ARGV[2])
redis.call('EXPIRE', KEYS[3], ARGV[2])"""


class SharedSpeeches(RecentSpeeches):
    """Outcomes in Redis, for a time, so many and so many bytes of each client, and request ids.

    This process's latest outcomes are in its memory too: they are found while Redis is away, and
    are written when it is back. Meanwhile no repeated request is recognised, or requests with an id
    are refused.
    """

    def __init__(
        self,
        state: SharedState,
        limit: int,
        *,
        keep_s: int,
        keep_bytes: int,
        log_text: bool = False,
    ) -> None:
        super().__init__(limit, log_text=log_text)
        self._state = state
        self._keep_s = keep_s
        self._keep_bytes = keep_bytes
        self._store = state.redis.register_script(_KEEP)
        self._unwritten: dict[str, tuple[AskedSpeech, Outcome]] = {}
        self._writing: asyncio.Task[None] | None = None
        state.on_return.append(self._write_soon)
        state.repeat(_LEASE_S / 3, self._renew_claims)
        state.on_stop.append(self._finish)

    @property
    def unwritten(self) -> int:
        """How many outcomes are not in Redis yet."""
        return len(self._unwritten)

    def keep(self, asked: AskedSpeech, outcome: Outcome) -> None:
        """Store the outcome of a speech: here at once, and in Redis soon; then end its claim."""
        self._remember(asked, outcome)
        if not self._limit:
            self.end(asked.job.id, complete=isinstance(outcome, SpeechResult))
            return
        self._unwritten[asked.job.id] = (asked, outcome)
        while len(self._unwritten) > self._limit:  # Redis is away or slow
            lost = next(iter(self._unwritten))
            del self._unwritten[lost]
            self.end(lost, complete=False)
        self._write_soon()

    async def find(self, job_id: str, owner: str) -> tuple[AskedSpeech, Outcome]:
        """Return an owner's speech as it was asked for, and its outcome, of any process.

        Raises UnknownSpeech as `RecentSpeeches.find` does, and while Redis is away.
        """
        with suppress(UnknownSpeech):
            return await super().find(job_id, owner)
        try:
            packed = await self._state.run(self._state.redis.get, _key(job_id, owner))
        except StateAway:
            raise UnknownSpeech("speeches of other processes cannot be looked up now") from None
        if packed is None:
            raise UnknownSpeech(
                f"no speech of that id is stored; the last {self._limit} of each client are kept"
                f" for {self._keep_s} s"
            )
        try:
            return await asyncio.to_thread(unpack_outcome, packed)
        except ValueError as error:
            log.error("the speech %s in Redis: %s", job_id, error)
            raise UnknownSpeech("the speech of that id was stored by another version") from error

    def _write_soon(self) -> None:
        if self._writing is None or self._writing.done():
            self._writing = asyncio.create_task(self._write())

    async def _write(self) -> None:
        """Write what is not in Redis yet, the oldest first."""
        while self._unwritten:
            job_id, (asked, outcome) = next(iter(self._unwritten.items()))
            packed = await asyncio.to_thread(self._packed, asked, outcome)
            stored = isinstance(outcome, SpeechResult)
            if packed is not None:
                keys = [
                    _key(job_id, asked.job.owner),
                    *(f"{KEY_PREFIX}{of}:{asked.job.client}" for of in _INDEX),
                ]
                arguments = [packed, self._keep_s, self._limit, self._keep_bytes]
                try:
                    await self._state.run(self._store, keys=keys, args=arguments)
                except StateRefused:
                    stored = False  # nor would it be stored later: the others are
                except StateAway:
                    return  # `on_return` begins again
            self._unwritten.pop(job_id, None)
            self.end(job_id, complete=stored)

    def _packed(self, asked: AskedSpeech, outcome: Outcome) -> bytes | None:
        """Return an outcome as bytes, without its trace if it is too large; None if it still is."""
        for traces in (True, False):
            packed = pack_outcome(asked, outcome, traces=traces)
            if len(packed) <= self._keep_bytes:
                return packed
            log.warning(
                "response %s has %d bytes, and %d may be kept: %s",
                *(asked.job.id, len(packed), self._keep_bytes),
                "its trace is not" if traces else "it is not",
            )
        return None

    async def _claim(self, key: str, entry: Entry) -> Entry | None:
        redis = self._state.redis
        try:
            found = await self._state.run(
                redis.set, KEY_PREFIX + key, json.dumps(entry), nx=True, get=True, ex=_LEASE_S
            )
        except StateAway:
            if self._state.closed_if_away:
                raise StateUnavailable(
                    "whether this request was made before cannot be known now", retry_after_s=1
                ) from None
            return None
        return None if found is None else Entry(*json.loads(found))

    def _end(self, key: str, entry: Entry | None) -> None:
        redis = self._state.redis
        key = KEY_PREFIX + key
        ending: Callable[[], Awaitable[object]] = partial(redis.delete, key)
        if entry is not None:
            ending = partial(redis.set, key, json.dumps(entry), ex=self._keep_s)
        self._state.spawn(self._quietly(ending))

    async def _renew_claims(self) -> None:
        for key, _ in list(self._claims.values()):
            # Never sooner than it does: it may have been kept for longer meanwhile.
            await self._quietly(
                partial(self._state.redis.expire, KEY_PREFIX + key, _LEASE_S, gt=True)
            )

    async def _quietly(self, command: Callable[[], Awaitable[object]]) -> None:
        """Run a command, unless Redis is away: then the entry lapses."""
        with suppress(StateAway):
            await self._state.run(command)

    async def _finish(self) -> None:
        if self._writing is not None:
            await self._writing


def _key(job_id: str, owner: str) -> str:
    return f"{KEY_PREFIX}speech:{owner}:{job_id}"

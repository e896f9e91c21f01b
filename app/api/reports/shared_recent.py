"""The most recent speeches of all processes that share a Redis."""

import asyncio
import logging

from app.api.reports.packing import pack, unpack
from app.api.reports.recent import Failure, RecentSpeeches
from app.engine.errors import UnknownSpeech
from app.engine.job import SpeechJob, SpeechResult
from app.storage.shared_state import PREFIX, SharedState, StateAway, StateRefused

log = logging.getLogger(__name__)

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
    """Outcomes in Redis, for a time, so many and so many bytes of each client.

    This process's latest are in its memory too: they are found while Redis is away, and are written
    when it is back.

    Args:
        limit: Number of entries of each client, and of this process in memory; 0 stores none.
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
        self._state, self._keep_s, self._keep_bytes = state, keep_s, keep_bytes
        self._store = state.redis.register_script(_KEEP)
        self._unwritten: dict[str, tuple[SpeechJob, SpeechResult | Failure]] = {}
        self._writing: asyncio.Task[None] | None = None
        state.on_return.append(self._write_soon)
        state.on_stop.append(self._finish)

    def keep(self, job: SpeechJob, outcome: SpeechResult | Failure) -> None:
        """Store a job's outcome: here at once, and in Redis soon."""
        self._keep(job, outcome)
        if not self._limit:
            self.when_kept(job, isinstance(outcome, SpeechResult))
            return
        self._unwritten[job.id] = (job, outcome)
        while len(self._unwritten) > self._limit:  # Redis is away or slow
            lost, _ = self._unwritten.pop(next(iter(self._unwritten)))
            self.when_kept(lost, False)
        self._write_soon()

    async def find(self, job_id: str, owner: str) -> tuple[SpeechJob, SpeechResult | Failure]:
        """Return an owner's job and its outcome, of any process.

        Raises:
            UnknownSpeech: It is not stored or belongs to another owner, or Redis is away; the
                message does not tell which of the first two.
        """
        try:
            return await super().find(job_id, owner)
        except UnknownSpeech:
            pass
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
            return await asyncio.to_thread(unpack, packed)
        except ValueError as error:
            log.error("the speech %s in Redis: %s", job_id, error)
            raise UnknownSpeech("the speech of that id was stored by another version") from error

    def _write_soon(self) -> None:
        if self._writing is None or self._writing.done():
            self._writing = asyncio.create_task(self._write())

    async def _write(self) -> None:
        """Write what is not in Redis yet, the oldest first."""
        while self._unwritten:
            job_id, (job, outcome) = next(iter(self._unwritten.items()))
            packed = await asyncio.to_thread(self._packed, job, outcome)
            stored = isinstance(outcome, SpeechResult)
            if packed is not None:
                keys = [_key(job_id, job.owner), *(f"{PREFIX}{of}:{job.asker}" for of in _INDEX)]
                arguments = [packed, self._keep_s, self._limit, self._keep_bytes]
                try:
                    await self._state.run(self._store, keys=keys, args=arguments)
                except StateRefused:
                    stored = False  # nor would it be stored later: the others are
                except StateAway:
                    return  # `on_return` begins again
            self._unwritten.pop(job_id, None)
            self.when_kept(job, stored)

    def _packed(self, job: SpeechJob, outcome: SpeechResult | Failure) -> bytes | None:
        """Return an outcome as bytes, without its trace if it is too large; None if it still is."""
        for traces in (True, False):
            packed = pack(job, outcome, traces=traces)
            if len(packed) <= self._keep_bytes:
                return packed
            log.warning(
                "response %s has %d bytes, and %d may be kept: %s",
                *(job.id, len(packed), self._keep_bytes),
                "its trace is not" if traces else "it is not",
            )
        return None

    async def _finish(self) -> None:
        if self._writing is not None:
            await self._writing


_INDEX = ("kept", "kept-bytes")


def _key(job_id: str, owner: str) -> str:
    return f"{PREFIX}speech:{owner}:{job_id}"

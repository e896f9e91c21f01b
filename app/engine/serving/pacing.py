"""What a client may have done at a time, and how soon again after what came to nothing."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from time import monotonic
from typing import Final

REST: Final = 3.0
"""Seconds of rest for each second that went into what was refused: a quarter of the time is its."""

LEAST_REST_S: Final = 0.25
MOST_REST_S: Final = 5.0

_MANY_CLIENTS: Final = 1024  # from here on, those that have rested are forgotten


@dataclass(slots=True)
class _Client:
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    waiting: int = 0
    rested_s: float = 0.0  # until when it rests, by the clock


class ClientPacer:
    """Has one thing of a client done at a time, and a rest after what is refused or left.

    A file of some hundred bytes is refused within milliseconds, and is sent again at once. So what
    is refused costs its client time, in proportion to the time that it took. What is done well
    costs none. One event loop only; ``clock`` and ``sleep`` are in seconds.
    """

    def __init__(
        self,
        clock: Callable[[], float] = monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._clock = clock
        self._sleep = sleep
        self._clients: dict[str, _Client] = {}

    @asynccontextmanager
    async def turn(self, client: str) -> AsyncIterator[None]:
        """Wait for a client's turn; what raises within the context is followed by a rest."""
        own = self._of(client)
        own.waiting += 1
        try:
            async with own.turn:
                await self._sleep(max(0.0, own.rested_s - self._clock()))
                began_s = self._clock()
                try:
                    yield
                except BaseException:
                    rest_s = max(LEAST_REST_S, REST * (self._clock() - began_s))
                    own.rested_s = self._clock() + min(rest_s, MOST_REST_S)
                    raise
        finally:
            own.waiting -= 1

    async def refuse(self) -> None:
        """Wait for as long as a client rests at least, before it is told that too much waits."""
        await self._sleep(LEAST_REST_S)

    def _of(self, client: str) -> _Client:
        if len(self._clients) > _MANY_CLIENTS:
            now_s = self._clock()
            self._clients = {
                name: one
                for name, one in self._clients.items()
                if one.waiting or one.rested_s > now_s
            }
        return self._clients.setdefault(client, _Client())

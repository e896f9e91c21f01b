"""Clients that read slowly: what the system holds for them, and how long they may take.

A client is seen to read only when its system says so, and that comes in steps: of some 125 kB where
the receive buffer has Linux' usual size, of 270 kB where it has 1 MB (measured over loopback, at
any size of segments). At a slow, steady pace it seems to read nothing for minutes. So what it has
taken is set against the time for which it was waited for, and not each wait against a limit.
"""

import asyncio
import socket
from collections.abc import Awaitable
from typing import Final

PIECE_BYTES: Final = 65_536
"""Longest piece of an answer. A client must take as much in each `stall_timeout_s`."""

SEND_BYTES: Final = 131_072
"""Most that the system holds of what was sent to a client and not read; Linux' limit is 4 MB."""

HIDDEN_BYTES: Final = 262_144
"""What both systems may hold before a client is seen to read more."""

_KEPT_BY_LINUX: Final = 2  # it doubles the size that is asked for (socket(7))


def limit_send_buffer(transport: asyncio.BaseTransport) -> None:
    """Bound what the system holds for the client of a connection; no-op but for TCP."""
    connection: socket.socket | None = transport.get_extra_info("socket")
    if connection is not None and connection.family in {socket.AF_INET, socket.AF_INET6}:
        size = SEND_BYTES // _KEPT_BY_LINUX
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, size)


def longest_wait_s(stall_timeout_s: float) -> float:
    """Return for how many seconds a client that reads at the least rate may seem not to."""
    return stall_timeout_s * (1 + HIDDEN_BYTES / PIECE_BYTES)


class Patience:
    """How long one client may still be waited for: a bucket of seconds, filled by what it takes.

    It begins with ``stall_timeout_s``, each `PIECE_BYTES` that were taken add as much, and it holds
    `longest_wait_s`. A client that reads at the least rate or faster never empties it.
    """

    def __init__(self, stall_timeout_s: float) -> None:
        self.left_s = stall_timeout_s
        self._most_s = longest_wait_s(stall_timeout_s)
        self._second_bytes = PIECE_BYTES / stall_timeout_s

    async def send(self, sending: Awaitable[None], size_bytes: int) -> None:
        """Wait until so many bytes are taken; raises TimeoutError once the time is used up."""
        clock = asyncio.get_running_loop()
        began_s = clock.time()
        async with asyncio.timeout(max(0.0, self.left_s)):
            await sending
        self.count(clock.time() - began_s, size_bytes)

    def count(self, waited_s: float, taken_bytes: int) -> None:
        """Count a wait, and what was taken in it."""
        earned_s = taken_bytes / self._second_bytes
        self.left_s = min(self._most_s, self.left_s - waited_s + earned_s)

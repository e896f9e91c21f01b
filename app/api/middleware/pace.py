"""Pauses for large inputs: who sends much that is refused waits for the answer."""

import asyncio
from typing import Final

PACED_BYTES: Final = 65_536
"""More than any text in JSON takes; what is larger than this is paced."""

PACE_BYTES_S: Final = 500_000
LONGEST_PAUSE_S: Final = 1.0

LONG_BYTES: Final = 1024
"""What is larger than this and refused is answered after `REFUSAL_PAUSE_S` at the earliest."""

REFUSAL_PAUSE_S: Final = 0.1


async def pace(size_bytes: int) -> None:
    """Wait a time that is proportional to the size of a large input, at most a second.

    To read and refuse megabytes takes milliseconds, during which no other thread runs Python. Sent
    again and again without a pause they take the processor from the requests of others.
    """
    if size_bytes > PACED_BYTES:
        await asyncio.sleep(min(size_bytes / PACE_BYTES_S, LONGEST_PAUSE_S))


async def pace_refusal(size_bytes: int) -> None:
    """Wait before a request of so many bytes is refused, at most a second.

    A long text that is refused costs some milliseconds, and nothing is spoken for it. Who sends it
    again as soon as it is refused would take most of the processor from others.
    """
    if LONG_BYTES < size_bytes <= PACED_BYTES:
        await asyncio.sleep(REFUSAL_PAUSE_S)
    await pace(size_bytes)

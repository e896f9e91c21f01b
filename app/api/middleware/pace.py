"""Pauses for large inputs: who sends megabytes that are refused waits for the answer."""

import asyncio
from typing import Final

PACED_BYTES: Final = 65_536
"""More than any text in JSON takes; what is larger than this is paced."""

PACE_BYTES_S: Final = 500_000
LONGEST_PAUSE_S: Final = 1.0


async def pace(size_bytes: int) -> None:
    """Wait a time that is proportional to the size of a large input, at most a second.

    To read and refuse megabytes takes milliseconds, during which no other thread runs Python. Sent
    again and again without a pause they take the processor from the requests of others.
    """
    if size_bytes > PACED_BYTES:
        await asyncio.sleep(min(size_bytes / PACE_BYTES_S, LONGEST_PAUSE_S))

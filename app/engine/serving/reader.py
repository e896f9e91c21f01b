"""The reader's side of a job: its chunks, and how much of them is unread."""

import asyncio
import threading
from time import monotonic

from app.engine.core import AudioChunk
from app.engine.errors import SpeechError

MAX_UNREAD_S = 5.0
"""Seconds of audio that may be unread before the job pauses."""


class ChunkReader:
    """Takes the chunks of a job on an event loop, which made it; any thread puts them.

    Attributes:
        chunks: The audio, and at the end perhaps an error.
        deadline_s: By the loop's clock; a pause extends it.
        over: Whether all was read, or the reader has left.
    """

    def __init__(self, timeout_s: float) -> None:
        self._loop = asyncio.get_running_loop()
        self.chunks: asyncio.Queue[AudioChunk | SpeechError] = asyncio.Queue()
        self.deadline_s = self._loop.time() + timeout_s
        self.over = False
        self._counting = threading.Lock()  # guards what follows
        self._unread_s = 0.0
        self._paused_at_s = 0.0

    @property
    def paused_s(self) -> float:
        """Seconds since the job paused because too much audio is unread; 0 while it runs."""
        since_s = self._paused_at_s
        return monotonic() - since_s if since_s else 0.0

    def put(self, item: AudioChunk | SpeechError) -> None:
        """Send a chunk or an error; raises RuntimeError if the loop is closed."""
        self._loop.call_soon_threadsafe(self.chunks.put_nowait, item)

    def count(self, chunk: AudioChunk, *, may_pause: bool = False) -> None:
        """Count a chunk as unread; pause the job if that is too much."""
        with self._counting:
            self._unread_s += _seconds(chunk)
            if may_pause and self._unread_s > MAX_UNREAD_S:
                self._paused_at_s = self._paused_at_s or monotonic()

    async def take(self) -> AudioChunk | SpeechError:
        """Wait for a chunk or an error; raises TimeoutError at the deadline."""
        async with asyncio.timeout_at(self.deadline_s):
            return await self.chunks.get()

    def mark_read(self, chunk: AudioChunk) -> float | None:
        """Count a chunk as read, and extend the deadline by a pause that ends with it.

        Returns the seconds of audio that are unread then; None if no pause ends.
        """
        with self._counting:
            self._unread_s -= _seconds(chunk)
            if not self._paused_at_s or self._unread_s > MAX_UNREAD_S:
                return None
            self.deadline_s += monotonic() - self._paused_at_s
            self._paused_at_s = 0.0
            return self._unread_s


def _seconds(chunk: AudioChunk) -> float:
    return len(chunk.samples) / chunk.sample_rate_hz

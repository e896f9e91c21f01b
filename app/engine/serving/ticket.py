"""A job between the workers that make its audio and the one reader that consumes it."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from time import monotonic

from app.engine.errors import DeadlineExceeded, SpeechError
from app.engine.interface import Plan, Replay
from app.engine.job import AudioChunk, FinishReason, Progress
from app.engine.playback import Playback

MAX_UNREAD_S = 5.0
"""Seconds of audio that may be unread before the job pauses."""


class Ticket:
    """A job in the engine: written by the workers, read on the event loop.

    Attributes:
        job_id: The job's.
        asker: The client whose share of rows and places it takes.
        work: The plan of the job, or a replay; None until the text is read.
        loop: The reader's event loop.
        chunks: The audio, and at the end perhaps an error, for the reader.
        deadline_s: When the job must be over, by the loop's clock; each pause extends it.
        progress: Of level 0.
        playback: The audio against the clock.
        abandoned: Why the job was given up; None while it is wanted.
    """

    def __init__(
        self,
        job_id: str,
        timeout_s: float,
        wake: Callable[[], None],
        *,
        asker: str = "",
        played: bool = True,
    ) -> None:
        self.job_id, self.asker = job_id, asker
        self.work: Plan | Replay | None = None
        self.loop = asyncio.get_running_loop()
        self.chunks: asyncio.Queue[AudioChunk | SpeechError] = asyncio.Queue()
        self.deadline_s = self.loop.time() + timeout_s
        self.progress = Progress()
        self.playback = Playback(monotonic(), played=played)
        self.abandoned: FinishReason | None = None
        self._wake = wake
        self._closed = False
        self._changing = threading.Lock()
        self._unread_s = 0.0
        self._held: list[AudioChunk] = []  # until the playback begins
        self._paused_at_s: float | None = None

    @property
    def priority(self) -> int:
        """Of waiting jobs, those with the smallest number run first."""
        return self.work.job.priority if isinstance(self.work, Plan) else 0

    @property
    def paused_s(self) -> float:
        """Seconds since the job paused because too much audio is unread; 0 while it runs."""
        since_s = self._paused_at_s
        return 0.0 if since_s is None else monotonic() - since_s

    def send(self, item: AudioChunk | SpeechError) -> None:
        """Send a chunk or an error to the reader, from any thread.

        Chunks are held until the playback begins: see `Playback.prebuffer_s`.
        """
        if isinstance(item, AudioChunk):
            if item.result is not None:
                self.playback.finish()
            if self.playback.first_s is None:
                self._held.append(item)
                return
            for held in self._held:
                self._count(held)
            # After the last chunk there is nothing left to pause.
            self._count(item, may_pause=item.result is None)
        try:
            for one in (*self._held, item):
                self.loop.call_soon_threadsafe(self.chunks.put_nowait, one)
            self._held.clear()
        except RuntimeError:  # the reader's loop is closed
            self.abandoned = "cancelled"

    def _count(self, chunk: AudioChunk, *, may_pause: bool = False) -> None:
        """Count a chunk as unread; pause the job if that is too much."""
        with self._changing:
            self._unread_s += _seconds(chunk)
            if may_pause and self._unread_s > MAX_UNREAD_S:
                self._paused_at_s = self._paused_at_s or monotonic()

    def mark_read(self, chunk: AudioChunk) -> None:
        """Count a chunk as read; resume the job if it paused, and extend its deadline."""
        with self._changing:
            self._unread_s -= _seconds(chunk)
            if self._paused_at_s is None or self._unread_s > MAX_UNREAD_S:
                return
            self.deadline_s += monotonic() - self._paused_at_s
            self._paused_at_s = None
        self._wake()

    def abandon(self, reason: FinishReason) -> None:
        """Give the job up: the workers drop it at the next step or chunk."""
        self.abandoned = reason
        self._wake()

    def close(self) -> bool:
        """Return True to the first caller, who then accounts for the job's end, else False."""
        with self._changing:
            first, self._closed = not self._closed, True
            return first


class SpeechStream(AsyncIterator[AudioChunk]):
    """Async iterator of a job's chunks, for one reader. Closing it cancels the job."""

    def __init__(self, ticket: Ticket, cancel: Callable[[Ticket, FinishReason], None]) -> None:
        self._ticket = ticket
        self._cancel = cancel
        self._over = False

    @property
    def progress(self) -> Progress:
        """Of level 0."""
        return self._ticket.progress

    @property
    def plan(self) -> Plan | None:
        """The resolved job; None before its text is read, and for a replay."""
        work = self._ticket.work
        return work if isinstance(work, Plan) else None

    async def __anext__(self) -> AudioChunk:
        if self._over:
            raise StopAsyncIteration
        try:
            async with asyncio.timeout_at(self._ticket.deadline_s):
                item = await self._ticket.chunks.get()
        except TimeoutError:
            self._end("error")
            raise DeadlineExceeded("the request took longer than this server allows") from None
        except asyncio.CancelledError:
            self._end("cancelled")
            raise
        if isinstance(item, AudioChunk):
            self._ticket.mark_read(item)
            self._over = item.result is not None
            return item
        self._over = True
        raise item

    async def aclose(self) -> None:
        """Cancel the job if it is not done; it stops at its next frame."""
        self._end("cancelled")

    def __del__(self) -> None:
        if not self._over:  # takes no lock: the garbage collector runs in any thread, at any time
            self._ticket.abandoned = "cancelled"

    def _end(self, reason: FinishReason) -> None:
        if not self._over:
            self._over = True
            self._cancel(self._ticket, reason)


def _seconds(chunk: AudioChunk) -> float:
    return len(chunk.samples) / chunk.sample_rate_hz

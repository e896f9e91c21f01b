"""A job between the workers that make its chunks and the one reader who takes them."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from time import monotonic

from app.engine.errors import DeadlineExceeded, SpeechError
from app.engine.interface import Plan, Replay
from app.engine.job import AudioChunk, FinishReason, Progress
from app.engine.playback import Playback

MAX_UNREAD_S = 5.0
"""Seconds of sound that may wait for their reader before the job pauses."""


class Ticket:
    """A job in the engine: written by the workers, read on the event loop.

    Attributes:
        job_id: The job's.
        asker: Whose share of rows and places it takes.
        work: What is to be done; None until the text is read.
        deadline_s: When the job must be over, by the loop's clock; it moves by each pause.
        progress: How far the job is.
        playback: Its sound against the clock.
        abandoned: Why nobody wants it any more, or None.
    """

    def __init__(
        self, job_id: str, timeout_s: float, wake: Callable[[], None], *, asker: str = ""
    ) -> None:
        """Begin, on an event loop.

        Args:
            job_id: Of the job.
            timeout_s: How long it may take.
            wake: Called, in any thread, when the workers should look at it: it may go on after a
                pause, or nobody wants it any more.
            asker: Who asks: an owner of keys or an address.
        """
        self.job_id, self.asker = job_id, asker
        self.work: Plan | Replay | None = None
        self.loop = asyncio.get_running_loop()
        self.chunks: asyncio.Queue[AudioChunk | SpeechError] = asyncio.Queue()
        self.deadline_s = self.loop.time() + timeout_s
        self.progress = Progress()
        self.playback = Playback(monotonic())
        self.abandoned: FinishReason | None = None
        self._wake = wake
        self._closed = False
        self._changing = threading.Lock()
        self._unread_s = 0.0
        self._held: list[AudioChunk] = []  # until the first sound is given
        self._paused_at_s: float | None = None

    @property
    def priority(self) -> int:
        """Who comes first when several wait: the smaller."""
        return self.work.job.priority if isinstance(self.work, Plan) else 0

    @property
    def paused_s(self) -> float:
        """For how long more sound has been waiting than may; 0 while the job may go on."""
        since_s = self._paused_at_s
        return 0.0 if since_s is None else monotonic() - since_s

    def give(self, item: AudioChunk | SpeechError) -> None:
        """Hand something to the reader, from a worker."""
        if isinstance(item, AudioChunk):
            if item.result is not None:
                self.playback.finish()
            if self.playback.first_s is None:
                self._held.append(item)
                return
            for held in self._held:
                self._count(held)
            # After the last chunk nothing is left to pause.
            self._count(item, may_pause=item.result is None)
        try:
            for one in (*self._held, item):
                self.loop.call_soon_threadsafe(self.chunks.put_nowait, one)
            self._held.clear()
        except RuntimeError:  # the reader's loop is closed, so nobody waits
            self.abandoned = "cancelled"

    def _count(self, chunk: AudioChunk, *, may_pause: bool = False) -> None:
        """Count a chunk among those that wait for their reader."""
        with self._changing:
            self._unread_s += _seconds(chunk)
            if may_pause and self._unread_s > MAX_UNREAD_S:
                self._paused_at_s = self._paused_at_s or monotonic()

    def taken(self, chunk: AudioChunk) -> None:
        """Note that the reader has a chunk; a job that paused goes on, and gets its time back."""
        with self._changing:
            self._unread_s -= _seconds(chunk)
            if self._paused_at_s is None or self._unread_s > MAX_UNREAD_S:
                return
            self.deadline_s += monotonic() - self._paused_at_s
            self._paused_at_s = None
        self._wake()

    def abandon(self, reason: FinishReason) -> None:
        """Note that nobody wants the job any more."""
        self.abandoned = reason
        self._wake()

    def close(self) -> bool:
        """Return True to the one who ends the job, whoever comes first, and False to all others."""
        with self._changing:
            first, self._closed = not self._closed, True
            return first


class SpeechStream(AsyncIterator[AudioChunk]):
    """The chunks of one job, for its one reader. Closing it cancels the job."""

    def __init__(self, ticket: Ticket, cancel: Callable[[Ticket, FinishReason], None]) -> None:
        self._ticket = ticket
        self._cancel = cancel
        self._over = False

    @property
    def progress(self) -> Progress:
        """How far the job is."""
        return self._ticket.progress

    @property
    def plan(self) -> Plan | None:
        """Every choice that was made for the job; None before its text is read, and of a replay."""
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
            self._ticket.taken(item)
            self._over = item.result is not None
            return item
        self._over = True
        raise item

    async def aclose(self) -> None:
        """Stop reading; a job that is not done stops at its next frame."""
        self._end("cancelled")

    def __del__(self) -> None:
        if not self._over:  # no lock here: the collector may run in any thread, at any time
            self._ticket.abandoned = "cancelled"

    def _end(self, reason: FinishReason) -> None:
        if not self._over:
            self._over = True
            self._cancel(self._ticket, reason)


def _seconds(chunk: AudioChunk) -> float:
    return len(chunk.samples) / chunk.sample_rate_hz

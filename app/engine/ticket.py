"""A job between the worker that makes its chunks and the one reader who takes them."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from time import monotonic

from app.engine.errors import DeadlineExceeded, SpeechError
from app.engine.job import AudioChunk, FinishReason, Progress
from app.engine.speaking import Plan, Replay

MAX_UNREAD_S = 5.0
"""Seconds of sound that may wait for their reader before the job pauses."""


class Ticket:
    """A job in the engine: written by the worker, read on the event loop.

    Attributes:
        job_id: The job's.
        work: What is to be done; None until the text is read.
        deadline_s: When the job must be over, by the loop's clock; it moves by each pause.
        progress: How far the job is.
        abandoned: Why nobody wants it any more, or None.
    """

    def __init__(self, job_id: str, timeout_s: float) -> None:
        self.job_id = job_id
        self.work: Plan | Replay | None = None
        self.loop = asyncio.get_running_loop()
        self.chunks: asyncio.Queue[AudioChunk | SpeechError] = asyncio.Queue()
        self.deadline_s = self.loop.time() + timeout_s
        self.submitted_s = monotonic()
        self.progress = Progress()
        self.abandoned: FinishReason | None = None
        self._room = threading.Condition()
        self._unread_s = 0.0
        self._paused_at_s: float | None = None

    @property
    def paused_s(self) -> float:
        """For how long more sound has been waiting than may; 0 while the job may go on."""
        since_s = self._paused_at_s
        return 0.0 if since_s is None else monotonic() - since_s

    def give(self, item: AudioChunk | SpeechError) -> None:
        """Hand something to the reader, from the worker."""
        if isinstance(item, AudioChunk):
            with self._room:
                self._unread_s += _seconds(item)
                # After the last chunk nothing is left to pause.
                if self._unread_s > MAX_UNREAD_S and item.result is None:
                    self._paused_at_s = self._paused_at_s or monotonic()
        try:
            self.loop.call_soon_threadsafe(self.chunks.put_nowait, item)
        except RuntimeError:  # the reader's loop is closed, so nobody waits
            self.abandoned = "cancelled"

    def taken(self, chunk: AudioChunk) -> None:
        """Note that the reader has a chunk; a job that paused goes on, and gets its time back."""
        with self._room:
            self._unread_s -= _seconds(chunk)
            if self._paused_at_s is not None and self._unread_s <= MAX_UNREAD_S:
                self.deadline_s += monotonic() - self._paused_at_s
                self._paused_at_s = None
                self._room.notify_all()

    def abandon(self, reason: FinishReason) -> None:
        """Note that nobody wants the job any more; whoever waits for room need not."""
        with self._room:
            self.abandoned = reason
            self._room.notify_all()

    def wait_for_room(self, on_wait: Callable[[], None], every_s: float, at_most_s: float) -> bool:
        """Wait, in the worker, until the reader has caught up or the job is abandoned.

        A scheduler that has others to serve meanwhile asks `paused_s` instead.

        Args:
            on_wait: Called before each stretch of waiting.
            every_s: The longest such stretch.
            at_most_s: How long a pause may last.

        Returns:
            False if the pause lasted longer.
        """
        with self._room:
            while self._paused_at_s is not None and self.abandoned is None:
                if self.paused_s > at_most_s:
                    return False
                on_wait()
                self._room.wait(min(every_s, at_most_s))
            return True


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

"""A job between the worker that makes its chunks and the one reader who takes them."""

import asyncio
from collections.abc import AsyncIterator, Callable
from time import monotonic

from app.engine.errors import DeadlineExceeded, SpeechError
from app.engine.job import AudioChunk, FinishReason, Progress
from app.engine.speaking import Plan, Replay


class Ticket:
    """A job in the engine: written by the worker, read on the event loop."""

    def __init__(self, job_id: str, timeout_s: float) -> None:
        self.job_id = job_id
        self.work: Plan | Replay | None = None  # until the text is read
        self.loop = asyncio.get_running_loop()
        self.chunks: asyncio.Queue[AudioChunk | SpeechError] = asyncio.Queue()
        self.deadline_s = self.loop.time() + timeout_s
        self.submitted_s = monotonic()
        self.progress = Progress()
        self.abandoned: FinishReason | None = None

    def give(self, item: AudioChunk | SpeechError) -> None:
        """Hand something to the reader, from the worker."""
        try:
            self.loop.call_soon_threadsafe(self.chunks.put_nowait, item)
        except RuntimeError:  # the reader's loop is closed, so nobody waits
            self.abandoned = "cancelled"


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

"""The worker that makes sound of all jobs, a chunk at a time, the most urgent first."""

import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from time import monotonic, perf_counter
from typing import Any

from app.engine.errors import ReaderStalled, SpeechError, WorkerLost, broken
from app.engine.interface import Backend, Plan, Replay, SoundStream
from app.engine.job import AudioChunk, FinishReason
from app.engine.serving.capacity import Capacity
from app.engine.serving.forecast import Stream, fits, wait_s
from app.engine.serving.outcomes import Outcomes
from app.engine.serving.ticket import Ticket

_WAIT_S = 0.25


class _Line:
    """What one job has waiting here.

    Attributes:
        ticket: The job.
        began_s: When it was admitted, by `time.monotonic`.
        starts: Whether its first sound is still to be given.
        items: What its level 0 gave, in order, and at last perhaps an error.
        chunks: The sound of the item that was begun; None between two items.
        sound_stream: Makes it; None before the first item, and for a replay.
    """

    def __init__(self, ticket: Ticket) -> None:
        self.ticket = ticket
        self.began_s = monotonic()
        self.starts = True
        self.items: deque[Any] = deque()
        self.chunks: Iterator[AudioChunk] | None = None
        self.sound_stream: SoundStream | None = None

    @property
    def ready(self) -> bool:
        """Whether there is something to do for it."""
        if self.ticket.abandoned is not None:
            return True
        fresh_replay = isinstance(self.ticket.work, Replay) and self.chunks is None
        return bool(self.items) or self.chunks is not None or fresh_replay

    @property
    def urgency(self) -> tuple[bool, int, float]:
        """The least comes first: who is gone, then whoever's listener runs out of sound first."""
        ticket = self.ticket
        return ticket.abandoned is None, ticket.priority, ticket.playback.runs_out_s

    def next_chunk(self, backend: Backend) -> AudioChunk | None:
        """Return the next chunk of the item that was begun, or of the next; None at an item's end.

        Raises:
            SpeechError: It broke, here or at level 0.
        """
        if self.chunks is None:
            self.chunks = self._begin(backend)
        chunk = next(self.chunks, None)
        if chunk is None:
            self.chunks = None
        return chunk

    def _begin(self, backend: Backend) -> Iterator[AudioChunk]:
        work = self.ticket.work
        if isinstance(work, Replay):
            return backend.replay(work, self.ticket.playback)
        assert isinstance(work, Plan)
        item = self.items.popleft()
        if isinstance(item, SpeechError):
            raise item
        if self.sound_stream is None:
            self.sound_stream = backend.sound_stream(work, self.ticket.playback)
        return self.sound_stream.push(item)

    def close(self) -> None:
        if self.sound_stream is not None:
            self.sound_stream.close()


class SoundWorker:
    """Jobs that run, from the first frame of their level 0 to their last chunk.

    Attributes:
        beat_s: When the worker last moved, by `time.monotonic`.
    """

    def __init__(
        self,
        outcomes: Outcomes,
        capacity: Capacity,
        *,
        on_end: Callable[[Ticket], None],
        stall_timeout_s: float,
    ) -> None:
        """Begin with no jobs.

        Args:
            outcomes: Records how each job ends.
            capacity: Told what sound costs; says how many listeners can be served.
            on_end: Called when a job is done with.
            stall_timeout_s: Longest pause of a job whose reader does not take its sound.
        """
        self._outcomes, self._on_end = outcomes, on_end
        self._stall_timeout_s = stall_timeout_s
        self._capacity = capacity
        self._lines: dict[Ticket, _Line] = {}
        self._left: list[_Line] = []  # whose jobs are over; still to be closed by the worker
        self._changed = threading.Condition()
        self._closed = False
        self.beat_s = monotonic()

    def has_room_for(self, speech_s: float) -> bool:
        """Return whether one listener more, to so many seconds, would make nobody hear a gap.

        To wait for the first sound is better than to begin and stall.
        """
        capacity = self._capacity
        return fits(self._streams(), speech_s, capacity.speed, capacity.blocking_s)

    def hold_s(self, speech_s: float) -> float:
        """Return the seconds of sound to make before the first is given.

        Beside others, as much as work on them may keep a stream waiting. And alone, what is made
        at a speed below 1 and heard at 1 lasts if ``1 - speed`` of it comes first.
        """
        beside_s = self._capacity.blocking_s if self._streams() else 0.0
        return max(beside_s, (1.0 - self._capacity.speed) * speech_s)

    def wait_s(self, speech_s: float, ahead_s: Sequence[float]) -> float:
        """Return in how many seconds one listener more will likely begin to be served.

        Args:
            speech_s: How long it will be.
            ahead_s: How long those will be that wait and come first.
        """
        streams, capacity = self._streams(), self._capacity
        beside_s = capacity.blocking_s if streams or ahead_s else 0.0
        waited_s = wait_s(streams, ahead_s, speech_s, capacity.speed, capacity.blocking_s)
        return waited_s + beside_s

    def _streams(self) -> list[Stream]:
        with self._changed:
            playbacks = [ticket.playback for ticket in self._lines]
        return [
            Stream(one.lead_s, one.left_s, one.first_s is not None)
            for one in playbacks
            if one.left_s
        ]

    def begin(self, ticket: Ticket) -> None:
        """Take a job; a replay needs no more than this."""
        with self._changed:
            self._lines[ticket] = _Line(ticket)
            self._changed.notify_all()

    def put(self, ticket: Ticket, item: Any) -> None:
        """Take what the level 0 of a job gave, or the error that ends it; nothing once it ended."""
        with self._changed:
            if (line := self._lines.get(ticket)) is not None:
                line.items.append(item)
                self._changed.notify_all()

    def wake(self) -> None:
        """Look at all jobs anew: one may go on; those that were abandoned are over at once.

        A chunk that is being made for one of them is made to its end, for nobody.
        """
        with self._changed:
            left = [line for line in self._lines.values() if line.ticket.abandoned is not None]
            for line in left:
                del self._lines[line.ticket]
            self._left += left
            self._changed.notify_all()
        for line in left:
            self._outcomes.ended(line.ticket, line.ticket.abandoned or "cancelled")
            self._on_end(line.ticket)

    def close(self) -> None:
        """Let `run` end once no job is left."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def run(self, backend: Backend) -> None:
        """Make sound until closed. In a thread of its own.

        Args:
            backend: The loaded model.
        """
        while (line := self._next()) is not None:
            self._go_on(backend, line)
            self.beat_s = monotonic()

    def fail_all(self, error: SpeechError) -> None:
        """End every job with an error: the worker broke."""
        for line in list(self._lines.values()):
            self._end(line, "error", error)

    def _next(self) -> _Line | None:
        """Wait for the most urgent job that has something to do; None once all are done."""
        with self._changed:
            while True:
                self.beat_s = monotonic()
                while self._left:
                    self._left.pop().close()
                lines = [line for line in self._lines.values() if line.ready and self._may(line)]
                if lines:
                    return min(lines, key=lambda line: line.urgency)
                if self._closed and not self._lines:
                    return None
                self._changed.wait(_WAIT_S)

    def _may(self, line: _Line) -> bool:
        """Return whether a job need not wait for its reader, or waited for too long."""
        paused_s = line.ticket.paused_s
        gone = line.ticket.abandoned is not None
        return not paused_s or gone or paused_s > self._stall_timeout_s

    def _go_on(self, backend: Backend, line: _Line) -> None:
        """Make the next chunk of a job; whatever happens to it happens to it alone.

        Raises:
            WorkerLost: Nobody can make sound any more.
        """
        ticket = line.ticket
        if ticket.abandoned is not None:
            self._end(line, ticket.abandoned)
            return
        if ticket.paused_s:
            error = ReaderStalled(f"nobody took the sound for {self._stall_timeout_s:g} s")
            self._end(line, "cancelled", error)
            return
        started_s, given_s = perf_counter(), ticket.playback.given_s
        try:
            chunk = line.next_chunk(backend)
        except SpeechError as error:
            self._end(line, "error", error)
            return
        except WorkerLost:
            raise
        except Exception as error:
            self._end(line, "error", broken(ticket.job_id, error))
            return
        if line.sound_stream is not None:  # a replay costs next to nothing
            sound_s = ticket.playback.given_s - given_s
            self._capacity.note_sound(perf_counter() - started_s, sound_s)
            if line.starts and ticket.playback.first_s is not None:
                line.starts = False
                self._capacity.note_start(monotonic() - line.began_s)
        if chunk is None:
            return
        if chunk.result is None:
            ticket.give(chunk)
            return
        if isinstance(ticket.work, Plan):
            phonemes = sum(len(one.phonemes) for one in chunk.result.utterances)
            self._capacity.note_spoken(phonemes, chunk.result.audio_s)
        self._outcomes.completed(ticket, chunk.result)
        self._forget(line)
        ticket.give(chunk)

    def _end(self, line: _Line, reason: FinishReason, error: SpeechError | None = None) -> None:
        self._outcomes.ended(line.ticket, reason, error)
        self._forget(line)
        line.ticket.abandon(reason)  # so that its level 0 stops too

    def _forget(self, line: _Line) -> None:
        with self._changed:
            self._lines.pop(line.ticket, None)
        line.close()
        self._on_end(line.ticket)

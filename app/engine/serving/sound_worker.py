"""The worker that makes the audio of all jobs, a chunk at a time, the most urgent job first."""

import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from time import monotonic, perf_counter

from app.engine.capacity import Capacity
from app.engine.errors import ReaderStalled, SpeechError, WorkerLost, broken
from app.engine.interface import Backend, Plan, Replay, SoundStream
from app.engine.job import AudioChunk, FinishReason
from app.engine.serving.forecast import Stream, fits, wait_s
from app.engine.serving.outcomes import Outcomes
from app.engine.serving.ticket import Ticket
from app.engine.utterance import Level0Chunk
from models.cuda.lost import is_device_lost

_WAIT_S = 0.25


class _ActiveJob:
    """A job of the sound worker, and its queue.

    Attributes:
        ticket: The job.
        beside: Whether other streams ran when it was admitted.
        started: Whether its playback has begun.
        items: Chunks of level 0, in order, and at the end perhaps an error.
        audio: The rest of the audio of each item that was taken, in order.
        stream: Makes the audio; None before the first item, and for a replay.
        made_s: Seconds of work on chunks that were made along with others and not asked for yet.
        early: Its early chunks; none of a replay.
        first_s: When its first audio was made, by `time.monotonic`; None before.
        made: How many times audio was made.
    """

    def __init__(self, ticket: Ticket, *, beside: bool) -> None:
        self.ticket = ticket
        self.beside = beside
        self.started = False
        self.items: deque[Level0Chunk | SpeechError] = deque()
        self.audio: deque[Iterator[AudioChunk]] = deque()
        self.stream: SoundStream | None = None
        self.made_s = 0.0
        self.early = ticket.work.early if isinstance(ticket.work, Plan) else ()
        self.first_s: float | None = None
        self.made = 0
        self._ending = False  # whether an utterance ends with the item that was taken last

    @property
    def ready(self) -> bool:
        """Whether there is work for it."""
        if self.ticket.abandoned is not None:
            return True
        new_replay = isinstance(self.ticket.work, Replay) and not self.audio
        return bool(self.items) or bool(self.audio) or new_replay

    @property
    def urgency(self) -> tuple[bool, int, float]:
        """Sort key, the least first: abandoned, priority, when audio is due."""
        ticket = self.ticket
        return ticket.abandoned is None, ticket.priority, ticket.playback.due_s

    @property
    def at_once(self) -> bool:
        """Whether it gives way to no other: it is played, and has no less priority than usual."""
        return self.ticket.playback.played and self.ticket.priority <= 0

    def next_s(self, capacity: Capacity) -> float:
        """Return in how many seconds its next audio comes; 0 after its early chunks."""
        coming = max(0, self.made - 1)
        if coming >= len(self.early):
            return 0.0
        elapsed_s = 0.0 if self.first_s is None else monotonic() - self.first_s
        return max(0.0, capacity.chunk_s(self.early[coming].frames) - elapsed_s)

    def next_chunk(self, backend: Backend) -> AudioChunk | None:
        """Return the next chunk of audio of the current item; None at its end."""
        if not self.audio:
            self.audio.append(self._begin_item(backend))
        chunk = next(self.audio[0], None)
        if chunk is None:
            self.audio.popleft()
        return chunk

    def hand_on(self) -> None:
        """Give the stream all frames of the utterance that has begun, before their turn comes."""
        while self.items and self.stream is not None and not (self.audio and self._ending):
            item = self.items[0]
            if isinstance(item, SpeechError) or not len(item.codes):
                return  # what begins with it is prepared in its turn
            self.audio.append(self._push(self.stream, item))
            self.items.popleft()

    def _begin_item(self, backend: Backend) -> Iterator[AudioChunk]:
        work = self.ticket.work
        if isinstance(work, Replay):
            return backend.replay(work, self.ticket.playback)
        assert isinstance(work, Plan)
        item = self.items.popleft()
        if isinstance(item, SpeechError):
            raise item
        if self.stream is None:
            self.stream = backend.sound_stream(work, self.ticket.playback)
        return self._push(self.stream, item)

    def _push(self, stream: SoundStream, item: Level0Chunk) -> Iterator[AudioChunk]:
        self._ending = item.ending is not None
        return stream.push(item)

    def close(self) -> None:
        if self.stream is not None:
            self.stream.close()


class SoundWorker:
    """Running jobs, from their admission to their last chunk of audio.

    `run` takes a thread of its own; the other methods are called from others.

    Attributes:
        beat_s: When the thread last showed a sign of life, by `time.monotonic`.
    """

    def __init__(
        self,
        outcomes: Outcomes,
        capacity: Capacity,
        *,
        on_end: Callable[[Ticket], None],
        stall_timeout_s: float,
    ) -> None:
        self._outcomes, self._on_end = outcomes, on_end
        self._stall_timeout_s = stall_timeout_s
        self._capacity = capacity
        self._jobs: dict[Ticket, _ActiveJob] = {}
        self._ended: list[_ActiveJob] = []  # abandoned; the worker has still to close them
        self._changed = threading.Condition()
        self._closed, self._at_once = False, 1
        self.beat_s = monotonic()

    def has_room_for(self, speech_s: float) -> bool:
        """Return whether one more stream, of so many seconds, would make no stream stall."""
        capacity = self._capacity
        return fits(self._streams(), speech_s, capacity.speed, capacity.blocking_s)

    def wait_s(self, speech_s: float, ahead_s: Sequence[float]) -> tuple[float, bool]:
        """Forecast the seconds until one more stream is admitted.

        Args:
            speech_s: Its length.
            ahead_s: The lengths of the waiting streams that come first.

        Returns:
            The seconds, and whether other streams run or come first.
        """
        streams, capacity = self._streams(), self._capacity
        waited_s = wait_s(streams, ahead_s, speech_s, capacity.speed, capacity.blocking_s)
        return waited_s, bool(streams or ahead_s)

    def _streams(self) -> list[Stream]:
        """Return the jobs that are played; the others give way to them."""
        with self._changed:
            jobs = list(self._jobs.values())
        return [
            Stream(one.lead_s, one.left_s, one.first_s is not None, job.next_s(self._capacity))
            for job in jobs
            if (one := job.ticket.playback).left_s and one.played
        ]

    def begin(self, ticket: Ticket) -> None:
        """Add a job; a replay needs nothing else."""
        beside = bool(self._streams())
        with self._changed:
            self._jobs[ticket] = _ActiveJob(ticket, beside=beside)
            self._changed.notify_all()

    def _prebuffer_s(self, job: _ActiveJob) -> float:
        """Return the seconds of audio with which the playback of a job can begin."""
        capacity = self._capacity
        needed_s = (1.0 - capacity.speed) * job.ticket.playback.expected_s
        later = job.early[job.made :]
        drawn = job.early[job.made - 1].frames if job.made and later else 0
        for one in later:
            others_s = capacity.delay_s(self._before(job, one.before_s), self._at_once)
            played_s = one.before_s - later[0].before_s
            needed_s = max(needed_s, capacity.chunk_s(one.frames - drawn) + others_s - played_s)
        return needed_s

    def _before(self, job: _ActiveJob, lead_s: float) -> int:
        """Return how many jobs make a chunk before one that has so many seconds of audio."""
        with self._changed:
            others = [one for one in self._jobs.values() if one is not job]
        first = [one.at_once and one.ticket.playback.lead_s < lead_s for one in others]
        return sum(first) + (not all(first))

    def put(self, ticket: Ticket, item: Level0Chunk | SpeechError) -> None:
        """Queue a chunk of level 0, or the error that ends the job; no-op if the job has ended."""
        with self._changed:
            if (job := self._jobs.get(ticket)) is not None:
                job.items.append(item)
                self._changed.notify_all()

    def wake(self) -> None:
        """Check all jobs again: one may have resumed; end those that were abandoned.

        A chunk that is being made for an abandoned job is made to its end and dropped.
        """
        with self._changed:
            abandoned = [job for job in self._jobs.values() if job.ticket.abandoned is not None]
            for job in abandoned:
                del self._jobs[job.ticket]
            self._ended += abandoned
            self._changed.notify_all()
        for job in abandoned:
            self._outcomes.ended(job.ticket, job.ticket.abandoned or "cancelled")
            self._on_end(job.ticket)

    def close(self) -> None:
        """Let `run` return once no job is left."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def run(self, backend: Backend) -> None:
        """Make audio until closed.

        Args:
            backend: The loaded model.
        """
        while jobs := self._next():
            for job in self._prepared(backend, jobs):
                self._work_on(backend, job)
            self.beat_s = monotonic()

    def fail_all(self, error: SpeechError) -> None:
        """End every job with an error: the thread crashed."""
        for job in list(self._jobs.values()):
            self._end(job, "error", error)

    def _next(self) -> Sequence[_ActiveJob]:
        """Wait for work and return the jobs that have some, the most urgent first."""
        with self._changed:
            while True:
                self.beat_s = monotonic()
                while self._ended:
                    self._ended.pop().close()
                jobs = [job for job in self._jobs.values() if job.ready and self._may_run(job)]
                if jobs:
                    return sorted(jobs, key=lambda job: job.urgency)
                if self._closed and not self._jobs:
                    return ()
                self._changed.wait(_WAIT_S)

    def _may_run(self, job: _ActiveJob) -> bool:
        """Return whether a job is not paused, or is to be ended."""
        paused_s = job.ticket.paused_s
        abandoned = job.ticket.abandoned is not None
        return not paused_s or abandoned or paused_s > self._stall_timeout_s

    def _prepared(self, backend: Backend, jobs: Sequence[_ActiveJob]) -> Sequence[_ActiveJob]:
        """Return the most urgent job, and those whose next chunks were made along with its."""
        alone, self._at_once = jobs[:1], backend.chunks_at_once
        if self._at_once == 1:
            return alone
        together = {
            job.stream: job
            for job in jobs[: self._at_once]
            if job.stream is not None and job.ticket.abandoned is None and not job.ticket.paused_s
        }
        if alone[0].stream not in together:
            return alone
        started_s = perf_counter()
        try:
            for job in together.values():
                job.hand_on()
            made = [together[stream] for stream in backend.make_together([*together])]
        except Exception as error:
            if is_device_lost(error):
                raise
            for job in together.values():
                self._end(job, "error", broken(job.ticket.job_id, error))
            return ()
        if not made:
            return alone
        work_s = perf_counter() - started_s
        self._capacity.note_blocking(work_s)
        for job in made:
            job.made_s += work_s / len(made)
        return made

    def _work_on(self, backend: Backend, job: _ActiveJob) -> None:
        """Make the next chunk of a job; an error ends that job alone."""
        ticket = job.ticket
        if ticket.abandoned is not None:
            self._end(job, ticket.abandoned)
            return
        if ticket.paused_s:
            error = ReaderStalled(f"the reader took no audio for {self._stall_timeout_s:g} s")
            self._end(job, "cancelled", error)
            return
        if ticket.playback.played and ticket.playback.first_s is None:
            ticket.playback.prebuffer_s = self._prebuffer_s(job)
        started_s, before_s = perf_counter(), ticket.playback.audio_s
        try:
            chunk = job.next_chunk(backend)
        except SpeechError as error:
            self._end(job, "error", error)
            return
        except WorkerLost:
            raise
        except Exception as error:
            if is_device_lost(error):
                raise
            self._end(job, "error", broken(ticket.job_id, error))
            return
        if job.stream is not None:  # a replay costs next to nothing
            audio_s = ticket.playback.audio_s - before_s
            self._capacity.note_sound(perf_counter() - started_s + job.made_s, audio_s)
            job.made_s = 0.0
            if audio_s:
                job.first_s = job.first_s or monotonic()
                job.made += 1
            if not job.started and ticket.playback.first_s is not None:
                job.started = True
                self._note_start(job)
        if chunk is None:
            return
        if chunk.result is None:
            ticket.send(chunk)
            return
        if isinstance(ticket.work, Plan):
            phonemes = sum(len(one.phonemes) / one.rate for one in chunk.result.utterances)
            self._capacity.note_spoken(phonemes, chunk.result.audio_s)
        self._outcomes.completed(ticket, chunk.result)
        self._remove(job)
        ticket.send(chunk)

    def _note_start(self, job: _ActiveJob) -> None:
        """Note the start of a job that had no other to give way to."""
        playback = job.ticket.playback
        if playback.first_s is not None and (job.at_once or not job.beside):
            start_s = max(0.0, playback.first_s - playback.expected_admission_s)
            self._capacity.note_start(start_s, beside=playback.beside)

    def _end(self, job: _ActiveJob, reason: FinishReason, error: SpeechError | None = None) -> None:
        self._outcomes.ended(job.ticket, reason, error)
        self._remove(job)
        job.ticket.abandon(reason)  # so that its level 0 stops, too

    def _remove(self, job: _ActiveJob) -> None:
        with self._changed:
            self._jobs.pop(job.ticket, None)
        job.close()
        self._on_end(job.ticket)

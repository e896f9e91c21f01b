"""The worker that makes the audio of all jobs, a chunk at a time, the most urgent job first."""

import threading
from collections.abc import Callable, Sequence
from time import monotonic, perf_counter

from app.engine.admission.cost_model import SHARE, CostModel
from app.engine.admission.durations import pauses_s, spoken_symbols
from app.engine.admission.streams import Stream, least_lead_s, may_begin, promised
from app.engine.admission.text_pace import held_s
from app.engine.core import Plan, SpeechResult
from app.engine.errors import SpeechError, WorkerLost, broken
from app.engine.messages import ArMessage, JobFailed
from app.engine.model import AudioPart
from app.engine.results import FinishReason
from app.engine.serving.outcomes import JobLog
from app.engine.serving.running import JobHandle
from gpu.lost import is_device_lost

_WAIT_S = 0.25
_LOOK_S = 0.02  # between two looks at sound that waits for words: nothing tells that some came
_WORD_S = 0.2  # of speech, which is made once the word has come

SOLO_SHARE = 0.95
"""Of the measured speed, what a stream that gives way to nobody counts on."""


class AudioWorker:
    """Running jobs, from their admission to their last chunk of audio.

    `run` takes a thread of its own; the other methods are called from others.
    """

    def __init__(
        self,
        outcomes: JobLog,
        capacity: CostModel,
        *,
        on_end: Callable[[JobHandle], None],
    ) -> None:
        self._outcomes = outcomes
        self._on_end = on_end
        self._capacity = capacity
        self._jobs: dict[JobHandle, None] = {}  # in the order in which they began
        self._ended: list[JobHandle] = []  # abandoned; the worker has still to close them
        self._changed = threading.Condition()
        self._closed = False
        self._at_once = 1
        self.beat_s = monotonic()  # when the thread last showed a sign of life, by `time.monotonic`

    def has_room_for(self, job: JobHandle) -> bool:
        """Return whether one more stream may begin, or waits for one of its client's to end."""
        capacity = self._capacity
        streams = [stream for _, stream in self._played()]
        newcomer = Stream(0.0, job.playback.expected_s, client=job.client)
        return may_begin(streams, newcomer, capacity.speed, capacity.delay_s(1))

    def _played(self) -> list[tuple[JobHandle, Stream]]:
        """Return the jobs that are played and their streams, the oldest first."""
        # One that its reader lets wait needs nothing, nor does one whose text is not written yet.
        with self._changed:
            jobs = list(self._jobs)
        return [
            (job, job.stream(self._capacity))
            for job in jobs
            if job.playback.left_s
            and job.playback.played
            and not job.paused
            and not job.waits_for_text
        ]

    def promise(self) -> None:
        """Decide which streams are made in time; the others give way to them.

        To be called when a job begins, and now and then: what is known of streams changes.
        """
        capacity = self._capacity
        found = self._played()
        streams = [stream for _, stream in found]
        kept = promised(streams, capacity.speed, capacity.delay_s(1))
        for (job, _), is_promised in zip(found, kept, strict=True):
            job.promised = is_promised
            job.playback.gives_way = not is_promised

    def begin(self, job: JobHandle) -> None:
        """Add a job; a replay needs nothing else."""
        job.ar.admit(started_idle=not self._played())
        with self._changed:
            self._capacity.begin(len(self._jobs))
            self._jobs[job] = None
            self._changed.notify_all()
        self.promise()

    def prebuffer_s(self, job: JobHandle) -> float:
        """Return the seconds of audio with which the playback of a job can begin."""
        capacity = self._capacity
        needed_s = self._missing_s(job)
        made = job.audio.progress.made
        first_chunks = job.audio.progress.first_chunks
        later = first_chunks[made:]
        sampled = first_chunks[made - 1].frames if made and later else 0
        for one in later:
            others_s = capacity.delay_s(self._before(job, one.before_s), self._at_once)
            played_s = one.before_s - later[0].before_s
            needed_s = max(needed_s, capacity.chunk_s(one.frames - sampled) + others_s - played_s)
        return needed_s

    def begins_s(self, job: JobHandle) -> float:
        """Return when the playback of a job can begin, given how fast its text is written."""
        if job.pace is None or job.known is None:
            return 0.0
        progress = job.audio.progress
        coming = progress.first_chunks[max(0, progress.made - 1) :]
        later = [(one.speech_s, one.before_s) for one in coming]
        late_s = job.pace.late_s + self._capacity.cost * _WORD_S
        known = job.known.sampled(job.ar.sampled_s)
        wait_s = held_s(later, known, job.pace.chars_per_s, late_s)
        now_s = monotonic()
        return now_s + wait_s - max(0.0, job.lead_until_s - now_s)

    def _missing_s(self, job: JobHandle) -> float:
        """Return how much of a stream must be made before it plays, for it to be in time."""
        expected_s = job.playback.expected_s
        capacity = self._capacity
        if not job.playback.gives_way or not expected_s:
            return 0.0
        others = [stream for one, stream in self._played() if one is not job and one.promised]
        whole = Stream(0.0, expected_s)
        if job.ar.slow and job.cost:  # it cannot count on more than the whole machine
            return least_lead_s((), whole, SOLO_SHARE / job.cost)
        speed = capacity.speed if others else SOLO_SHARE / SHARE * capacity.speed
        return least_lead_s(others, whole, speed)

    def _before(self, job: JobHandle, lead_s: float) -> int:
        """Return how many jobs make a chunk before one that has so many seconds of audio."""
        with self._changed:
            others = [one for one in self._jobs if one is not job]
        first = [not one.gives_way and one.playback.lead_s < lead_s for one in others]
        return sum(first) + (not all(first))

    def put(self, *given: tuple[JobHandle, ArMessage | JobFailed]) -> None:
        """Queue what AR tells of jobs; what it tells of jobs that ended is not.

        In one call, all that a step gave: each wakes the worker.
        """
        with self._changed:
            kept = [one for one in given if one[0] in self._jobs]
            for job, message in kept:
                job.audio.messages.append(message)
            if kept:
                self._changed.notify_all()

    def wake(self) -> None:
        """Check all jobs again: one may have resumed; end those that were abandoned.

        A chunk that is being made for an abandoned job is made to its end and dropped.
        """
        with self._changed:
            abandoned = [job for job in self._jobs if job.abandoned is not None]
            for job in abandoned:
                del self._jobs[job]
            self._ended += abandoned
            if abandoned:
                self._capacity.end(len(self._jobs))
            self._changed.notify_all()
        for job in abandoned:
            self._outcomes.ended(job, job.abandoned or "cancelled")
            self._on_end(job)

    def close(self) -> None:
        """Let `run` return once no job is left."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def run(self, maker: AudioPart) -> None:
        """Make audio until closed."""
        while jobs := self._next():
            for job in self._prepared(maker, jobs):
                self._work_on(maker, job)
            self.beat_s = monotonic()

    def fail_all(self, error: SpeechError) -> None:
        """End every job with an error: the thread crashed."""
        for job in list(self._jobs):
            self._end(job, "error", error)

    def _next(self) -> Sequence[JobHandle]:
        """Wait for work and return the jobs that have some, the most urgent first."""
        with self._changed:
            while True:
                self.beat_s = monotonic()
                while self._ended:
                    self._ended.pop().audio.close()
                wait_s = self._look_at_held()
                jobs = [job for job in self._jobs if job.has_work or job.begins]
                if jobs:
                    return sorted(jobs, key=lambda job: job.urgency)
                if self._closed and not self._jobs:
                    return ()
                self._changed.wait(wait_s)

    def _look_at_held(self) -> float:
        """Say anew when playbacks begin that wait for text; return how long to wait at most."""
        wait_s = _WAIT_S
        for job in self._jobs:
            if job.is_held and job.pace is not None:
                playback = job.playback
                playback.begins_s = self.begins_s(job)
                if (left_s := playback.begins_s - monotonic()) > 0:
                    wait_s = min(wait_s, left_s, _LOOK_S)
        return wait_s

    def _prepared(self, maker: AudioPart, jobs: Sequence[JobHandle]) -> Sequence[JobHandle]:
        """Return the most urgent job, and those whose next chunks were made along with its."""
        first = jobs[:1]
        self._at_once = maker.chunks_at_once
        if self._at_once == 1:
            return first
        together = {
            job.audio.stream: job
            for job in jobs[: self._at_once]
            if job.audio.stream is not None and job.abandoned is None and not job.paused
        }
        if first[0].audio.stream not in together:
            return first
        started_s = perf_counter()
        try:
            for job in together.values():
                job.audio.push_queued()
            made = [together[stream] for stream in maker.make_together([*together])]
        except Exception as error:
            if is_device_lost(error):
                raise
            for job in together.values():
                self._end(job, "error", broken(job.id, error))
            return ()
        if not made:
            return first
        work_s = perf_counter() - started_s
        if all(job.usual for job in made):
            self._capacity.note_blocking(work_s)
        for job in made:
            job.audio.shared_s += work_s / len(made)
        return made

    def _work_on(self, maker: AudioPart, job: JobHandle) -> None:
        """Make the next chunk of a job; an error ends that job alone."""
        if job.abandoned is not None:
            self._end(job, job.abandoned)
            return
        playback = job.playback
        if job.begins:
            playback.begin()
            self._promise_as_begun(job)
            job.send_held()
        if not job.audio.is_waiting:
            return
        started_s = perf_counter()
        before_s = playback.audio_s
        is_silent = playback.played and playback.first_s is None
        try:
            job.audio.begin(maker, job.plan, playback)
            if is_silent:
                self.promise()
                playback.prebuffer_s = self.prebuffer_s(job)
                playback.begins_s = self.begins_s(job)
            chunk = job.audio.next_chunk(maker, playback)
        except WorkerLost:
            raise
        except Exception as error:
            if is_device_lost(error):
                raise
            self._end(job, "error", broken(job.id, error))
            return
        if is_silent and playback.first_s is not None:
            self._promise_as_begun(job)
        if job.audio.stream is not None:  # a replay costs next to nothing
            audio_s = playback.audio_s - before_s
            job.count_audio(self._capacity, perf_counter() - started_s, audio_s)
        if chunk is None:
            return
        if chunk.result is not None:
            if job.plan is not None:
                self._note_spoken(job.plan, chunk.result)
            self._outcomes.completed(job, chunk.result)
            self._remove(job)
        job.send(chunk)

    def _note_spoken(self, plan: Plan, result: SpeechResult) -> None:
        """Count how long the words of a job lasted."""
        before = plan.job.part.before
        silent_s = pauses_s(result.utterances, plan.params.pause_s, more=False)
        silent_s += before.pause_owed_s if before else 0.0
        speech_s = max(0.0, result.audio_s - silent_s)
        self._capacity.note_spoken(spoken_symbols(result.utterances), speech_s, plan.only_voice)

    def _promise_as_begun(self, job: JobHandle) -> None:
        """Promise a stream whose playback begins its audio in time, beside those that have that."""
        if not job.ar.slow:
            job.promised = True  # nobody is promised it before
            job.playback.gives_way = False

    def _end(self, job: JobHandle, reason: FinishReason, error: SpeechError | None = None) -> None:
        self._outcomes.ended(job, reason, error)
        self._remove(job)
        job.abandon(reason)  # so that its level 0 stops, too

    def _remove(self, job: JobHandle) -> None:
        with self._changed:
            self._jobs.pop(job, None)
            self._capacity.end(len(self._jobs))
        job.audio.close()
        self._on_end(job)

"""Which jobs sample level 0 in the next step; jobs join and leave between two steps."""

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial
from time import monotonic, perf_counter

from app.engine.admission.cost_model import CostModel
from app.engine.admission.quota import reserved, share
from app.engine.core import Plan
from app.engine.errors import SpeechError
from app.engine.interface import ArStream, RunningBatch
from app.engine.messages import ArMessage, JobFailed
from app.engine.serving.audio_worker import AudioWorker
from app.engine.serving.job_queue import JobQueue
from app.engine.serving.metrics import EngineMetrics
from app.engine.serving.running import JobHandle

MAX_WAITING_S = 10.0
"""Seconds of speech that may be sampled ahead of the audio worker; a job with more is paused."""

LATE_S = 1.0
AHEAD_S = 3.0
"""While any stream has less than `LATE_S` of speech ahead of its listener, only streams with less
than `AHEAD_S`, and of no less priority, are stepped: a step of fewer rows is quicker."""

YIELDING_SHARE = 0.2
_MOST_OWED_S = 0.1
"""While a stream that is promised its audio in time is late, those that give way have this share of
the time of steps: none is put off for ever. So much of it is saved, or owed, at most."""

_PROMISED_S = 0.1  # how often it is decided which streams are made in time
_IDLE_S = 5.0
_PAUSE_S = 0.25
_REFUSED_S = 0.01  # while jobs are stepped, how long those that had to wait are not looked at again

Fits = Callable[[Plan, Iterable[Plan]], bool]


class RowPolicy:
    """Chooses which of the waiting jobs gets rows of the batch next.

    Within a priority, the job comes first whose client has the fewest rows, and of those the
    oldest. No job overtakes one that does not fit yet, or a large job would never begin. With two
    exceptions: a job whose client has its full share waits without blocking others; and the
    reserved rows are for jobs that need no more, which therefore never delay a larger one.
    """

    def __init__(self, slots: int) -> None:
        self._slots = slots
        self._reserved = reserved(slots)
        self._share = share(slots)

    def next(
        self, waiting: Sequence[JobHandle], running: Collection[JobHandle]
    ) -> JobHandle | None:
        """Return the job of those waiting, the oldest first, that can begin now, or None."""
        rows_by_client = Counter[str]()
        small = 0
        for job in running:
            rows_by_client[job.client] += job.rows
            small += job.rows if self._is_small(job) else 0
        used = rows_by_client.total()
        blocked = False
        full = set[str]()
        for job in sorted(waiting, key=lambda one: (one.priority, rows_by_client[one.client])):
            rows = job.rows
            if job.client in full or rows_by_client[job.client] + rows > self._share:
                full.add(job.client)
                continue
            if self._is_small(job):
                fits = used + rows <= self._slots
                if fits and (not blocked or small + rows <= self._reserved):
                    return job
            elif not blocked and used - small + rows <= self._share and used + rows <= self._slots:
                return job
            blocked = True
        return None

    def _is_small(self, job: JobHandle) -> bool:
        """Return whether a job may have the reserved rows; without any, every job is small."""
        return not self._reserved or job.rows <= self._reserved


class Scheduler:
    """Admits jobs as rows become free, and runs the steps. `run` takes a thread of its own."""

    def __init__(
        self,
        queue: JobQueue,
        audio_worker: AudioWorker,
        capacity: CostModel,
        metrics: EngineMetrics,
        *,
        slots: int,
    ) -> None:
        self.queue = queue
        self._audio_worker = audio_worker
        self._metrics = metrics
        self._slots = slots
        self._shares = RowPolicy(slots)
        self.capacity = capacity
        self._frame_rate_hz = math.inf
        self._sampled: list[JobHandle] = []
        # What a step has given, for the audio worker
        self._messages: list[tuple[JobHandle, ArMessage | JobFailed]] = []
        self._owed_s = 0.0  # time of steps that those who give way have not had
        self._fits: Fits = lambda *_: True
        self.beat_s = monotonic()  # when the thread last showed a sign of life, by `time.monotonic`

    def run(
        self,
        batch: RunningBatch,
        frame_rate_hz: float,
        idle_after_s: float = math.inf,
        fits: Fits = lambda *_: True,
    ) -> None:
        """Step until the queue is closed and no job samples any more, or until idle for so long.

        ``fits`` says whether memory holds a plan along with those that run.
        """
        self._frame_rate_hz = frame_rate_hz
        self._fits = fits
        self._note_rows()
        busy_s = monotonic()
        look_s = 0.0
        jobs = list[JobHandle]()
        promise_s = 0.0
        while self._sampled or not self.queue.closed:
            self.beat_s = monotonic()
            if self._sampled or not self.queue.empty:
                busy_s = self.beat_s
            elif self.beat_s - busy_s > idle_after_s:
                return
            self._remove_abandoned(batch)
            if self.beat_s >= promise_s:
                self._audio_worker.promise()
                promise_s = self.beat_s + _PROMISED_S
            if not jobs or self.beat_s >= look_s:
                self._admit(batch)
                look_s = self.beat_s + (_REFUSED_S if self.queue.waiting else 0.0)
            self._extend(batch)
            jobs = self._choose()
            if jobs:
                self._step(batch, jobs)
            else:
                self.queue.wait(_PAUSE_S if self._sampled else min(_IDLE_S, idle_after_s))

    def sleep(self) -> None:
        """Wait until a job is submitted, or the queue is closed."""
        while self.queue.empty and not self.queue.closed:
            self.beat_s = monotonic()
            self.queue.wait(_IDLE_S)

    def fail_all(self, error: SpeechError) -> None:
        """End the jobs being sampled with an error: the thread crashed, and their batch is lost."""
        for job in self._sampled:
            self._audio_worker.put((job, JobFailed(error)))
        self._sampled.clear()
        self._messages.clear()
        self._note_rows()

    def _give(self, job: JobHandle, message: ArMessage | JobFailed) -> None:
        self._messages.append((job, message))

    def _note_rows(self) -> None:
        used = sum(job.rows for job in self._sampled)
        self.queue.free_rows = self._slots - used
        self._metrics.slots.labels("used").set(used)
        self._metrics.slots.labels("free").set(self._slots - used)

    def _admit(self, batch: RunningBatch) -> None:
        """Admit every waiting job that `_next` allows."""
        while (job := self.queue.pop(self._next)) is not None:
            self._audio_worker.begin(job)
            if job.plan is not None:
                started_s = perf_counter()
                job.ar.plan = job.plan
                job.ar.stream = batch.begin(job.plan, partial(self._give, job))
                self._sampled.append(job)
                if job.usual:
                    self.capacity.note_admission(perf_counter() - started_s)
                self._note_rows()

    def _next(self, waiting: Sequence[JobHandle]) -> JobHandle | None:
        """Return the job to admit next; None if all must wait."""
        replay = next((one for one in waiting if one.is_replay), None)
        if replay is not None:
            return replay
        job = self._shares.next(waiting, self._sampled)
        if job is None or job.plan is None:
            return None
        running = [one.plan for one in self.queue.running if one.plan is not None]
        fits = self._fits(job.plan, running) and (
            not job.playback.played or self._audio_worker.has_room_for(job)
        )
        return job if fits else None

    def _extend(self, batch: RunningBatch) -> None:
        """Give jobs what has become known of their texts; one whose text is refused fails."""
        for job in [*self._sampled]:
            assert job.ar.stream is not None
            if job.refusal is not None:
                self._audio_worker.put((job, JobFailed(job.refusal)))
                self._remove(batch, job)
            elif job.plan is not None and job.plan is not job.ar.plan:
                job.ar.plan = job.plan
                batch.extend(job.ar.stream, job.plan)

    def _remove_abandoned(self, batch: RunningBatch) -> None:
        for job in tuple(self._sampled):
            if job.abandoned is not None:
                self._remove(batch, job)
                self._audio_worker.wake()

    def _choose(self) -> list[JobHandle]:
        """Return the jobs to step, without those paused or too far ahead of the audio worker."""
        lead_s: dict[JobHandle, float] = {}
        for job in self._sampled:
            assert job.ar.stream is not None
            waits = job.ar.stream.waits
            job.playback.wait_for_words(waits)
            if waits:
                continue
            sampled_s = job.ar.stream.ready_s
            playback = job.playback
            if not job.paused and sampled_s - playback.audio_s <= MAX_WAITING_S:
                lead_s[job] = playback.lead_of(sampled_s)
        late = [job for job, lead in lead_s.items() if lead < LATE_S]
        if not late:
            return list(lead_s)
        promised = [job for job in lead_s if not job.gives_way]
        if self._owed_s <= 0 and any(lead_s[job] < LATE_S for job in promised):
            return [job for job in promised if lead_s[job] < AHEAD_S]
        priority = min(job.priority for job in late)
        return [job for job, lead in lead_s.items() if lead < AHEAD_S and job.priority <= priority]

    def _step(self, batch: RunningBatch, jobs: Sequence[JobHandle]) -> None:
        started_s = perf_counter()
        streams = list[ArStream]()
        rows = 0
        ready = 0  # frames that the step has made ready
        for job in jobs:
            assert job.ar.stream is not None
            streams.append(job.ar.stream)
            ready -= job.ar.stream.frames
            rows += job.rows
        batch.step(streams)
        step_s = perf_counter() - started_s
        tokens = 0
        for job, stream in zip(jobs, streams, strict=True):
            ready += stream.frames
            progress = stream.progress
            tokens += max(0, progress.frames - job.ar.progress.frames)
            job.ar.progress = progress
            job.count_step(step_s * job.rows / rows, self._frame_rate_hz)
            if stream.error is not None:
                self._give(job, JobFailed(stream.error))
            if stream.over:
                self._remove(batch, job)
        self._note_step(jobs, step_s, max(0, ready) / self._frame_rate_hz)
        self._audio_worker.put(*self._messages)
        self._messages.clear()
        self._metrics.steps.inc()
        self._metrics.tokens.inc(tokens)
        self._metrics.stage_s.labels("ar").inc(step_s)

    def _note_step(self, jobs: Sequence[JobHandle], step_s: float, sampled_s: float) -> None:
        """Note what a step cost, and what is owed to those that give way."""
        if all(job.usual for job in jobs):
            self.capacity.note_ar(step_s, sampled_s)
        if any(job.gives_way for job in jobs):
            owed_s = self._owed_s - step_s
        elif any(job.gives_way and not job.paused for job in self._sampled):
            owed_s = self._owed_s + YIELDING_SHARE * step_s
        else:
            owed_s = 0.0
        self._owed_s = min(_MOST_OWED_S, max(-_MOST_OWED_S, owed_s))

    def _remove(self, batch: RunningBatch, job: JobHandle) -> None:
        assert job.ar.stream is not None
        self._sampled.remove(job)
        batch.end(job.ar.stream)
        job.ar.stream = None
        self._note_rows()

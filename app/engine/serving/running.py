"""Jobs in the engine: one of them, all that wait and run, and how they end.

A job is first planned (its text is read), then it waits for the workers, then it runs.
"""

import asyncio
import logging
import threading
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from time import monotonic

from app.engine.cost_model import SHORT_S, Capacity, Cost
from app.engine.errors import DeadlineExceeded, EngineNotReady, SpeechError
from app.engine.interface import FirstChunk, Level0Stream, Plan, SoundStream
from app.engine.job import AudioChunk, FinishReason, Progress, SpeechResult
from app.engine.messages import ArMessage, JobFailed
from app.engine.model import AudioPart
from app.engine.playback import Playback
from app.engine.quota import share
from app.engine.serving.metrics import EngineMetrics
from app.engine.streams import Stream

log = logging.getLogger(__name__)

_SLOW_AFTER_S = 0.5
_QUICK = 0.5
"""Seconds of work after which a stream is known to be slow, and at which cost it is no more."""

_KNOWN_AFTER = 3
"""Chunks of audio after which the cost of a stream is known."""

MAX_UNREAD_S = 5.0
"""Seconds of audio that may be unread before the job pauses."""


class SpeechStream(AsyncIterator[AudioChunk]):
    """The chunks of a speech, for one reader, the last with its result.

    A job pauses while its reader takes none; a reader that sends them on leaves if its own client
    takes none for too long.
    """

    plan: Plan | None = None  # None before its text is read, and for a replay
    progress = Progress()  # of level 0

    def leave(self) -> None:
        """Cancel what is not done; it stops at its next frame."""
        raise NotImplementedError

    async def aclose(self) -> None:
        """Leave; for `contextlib.aclosing`."""
        self.leave()


class RunningJob(SpeechStream):
    """A job in the engine, from its submission to its end, for the workers and its reader.

    ``wake`` is called with the job when it was given up, or goes on after a pause. One that is
    not to be planned has the speech whose audio is made once more, ``replayed``.
    """

    def __init__(
        self,
        job_id: str,
        timeout_s: float,
        wake: Callable[["RunningJob"], None],
        *,
        client: str = "",
        played: bool = True,
        replayed: SpeechResult | None = None,
    ) -> None:
        self.id = job_id
        self.client = client
        self.replayed = replayed
        self.playback = Playback(monotonic(), played=played)
        self.loop = asyncio.get_running_loop()  # the reader's
        self.deadline_s = self.loop.time() + timeout_s  # by the loop's clock; a pause extends it
        # The audio, and at the end perhaps an error, for the reader:
        self.chunks: asyncio.Queue[AudioChunk | SpeechError] = asyncio.Queue()
        self.abandoned: FinishReason | None = None  # why it was given up, by any thread
        self._wake = wake
        self._closed = False
        self._changing = threading.Lock()
        self._over = False  # whether its reader has read all, or left
        self._unread_s = 0.0
        self._paused_at_s = 0.0
        # Written by the text thread: `plan`; by the decoding thread: `progress` and
        self.level_0: Level0Stream | None = None  # None where it has no rows
        self.alone = True  # whether no other stream ran when it was admitted
        self._admitted_s = 0.0
        # Added to by the decoding thread, taken from by the sound thread:
        self.messages: deque[ArMessage | JobFailed] = deque()
        # Written by the sound thread:
        self.sound: SoundStream | None = None  # None before its first message, and of a replay
        self.audio: deque[Iterator[AudioChunk]] = deque()  # the rest of that of each message taken
        self.shared_s = 0.0  # of work on chunks made along with others and not asked for yet
        self.made = 0  # how many times audio was made
        self.first_s: float | None = None  # when the first was, by `time.monotonic`
        self._begun = False  # whether its playback has
        # What it costs, as the two workers note it; a row's share of each step.
        self._level_0_cost = Cost(SHORT_S)
        self._sound_cost = Cost(SHORT_S)
        self._most_frames = 0  # of level 0, drawn before
        self.slow = False  # whether it could not keep up if it had the machine to itself
        self.promised: bool | None = None  # whether it is made in time; None before it is known
        self._ending = False  # whether an utterance ends with the message that was taken last
        self._held: list[AudioChunk] = []  # until the playback begins

    @property
    def rows(self) -> int:
        """How many rows of the batch it takes; a replay takes none."""
        return 0 if self.plan is None else self.plan.rows

    @property
    def priority(self) -> int:
        """Of waiting jobs, those with the smallest number run first."""
        return 0 if self.plan is None else self.plan.job.priority

    @property
    def paused_s(self) -> float:
        """Seconds since the job paused because too much audio is unread; 0 while it runs."""
        since_s = self._paused_at_s
        return monotonic() - since_s if since_s else 0.0

    def abandon(self, reason: FinishReason) -> None:
        """Give the job up: the workers drop it at the next step or chunk."""
        self.abandoned = reason
        self._wake(self)

    def close(self) -> bool:
        """Mark the job as ended; True on the first call only."""
        with self._changing:
            first = not self._closed
            self._closed = True
            return first

    def send(self, item: AudioChunk | SpeechError) -> None:
        """Send a chunk or an error to the reader.

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

    async def __anext__(self) -> AudioChunk:
        if self._over:
            raise StopAsyncIteration
        try:
            async with asyncio.timeout_at(self.deadline_s):
                item = await self.chunks.get()
        except TimeoutError:
            self.leave("error")
            raise DeadlineExceeded("the request took longer than this server allows") from None
        except asyncio.CancelledError:
            self.leave()
            raise
        if isinstance(item, SpeechError):
            self._over = True
            raise item
        self._over = item.result is not None
        self._mark_read(item)
        return item

    def leave(self, reason: FinishReason = "cancelled") -> None:
        """Give the job up for its reader, unless that has read all."""
        if not self._over:
            self._over = True
            self.abandon(reason)

    def _mark_read(self, chunk: AudioChunk) -> None:
        """Count a chunk as read; resume the job if it paused, and extend its deadline."""
        with self._changing:
            self._unread_s -= _seconds(chunk)
            if not self._paused_at_s or self._unread_s > MAX_UNREAD_S:
                return
            self.deadline_s += monotonic() - self._paused_at_s
            self._paused_at_s = 0.0
            self.playback.put_off(self._unread_s)
        self._wake(self)

    def _count(self, chunk: AudioChunk, *, may_pause: bool = False) -> None:
        """Count a chunk as unread; pause the job if that is too much."""
        with self._changing:
            self._unread_s += _seconds(chunk)
            if may_pause and self._unread_s > MAX_UNREAD_S:
                self._paused_at_s = self._paused_at_s or monotonic()

    # What follows is the sound thread's.

    def admitted(self, *, alone: bool) -> None:
        """Note that its work begins."""
        self.alone = alone
        self._admitted_s = monotonic()

    @property
    def has_work(self) -> bool:
        """Whether the sound thread has something to do for it."""
        if self.abandoned is not None:
            return True
        return not self.paused_s and bool(self.messages or self.audio or self.replayed is not None)

    @property
    def urgency(self) -> tuple[bool, int, float]:
        """Sort key, the least first: abandoned, priority, when audio is due."""
        return self.abandoned is None, self.priority, self.playback.due_s

    @property
    def gives_way(self) -> bool:
        """Whether others go first: it is not promised in time, or has less priority than usual."""
        return self.playback.gives_way or self.priority > 0

    @property
    def first_chunks(self) -> tuple[FirstChunk, ...]:
        """The first chunks of its utterances; see `SoundStream.first_chunks`."""
        return () if self.sound is None else self.sound.first_chunks

    @property
    def usual(self) -> bool:
        """Whether its cost tells what others cost."""
        return self.plan is not None and self.plan.usual

    @property
    def cost(self) -> float:
        """Seconds of work that a second of its audio takes; 0 before that is known."""
        if self.made < _KNOWN_AFTER:
            return 0.0
        return self._level_0_cost.each + self._sound_cost.each

    def count_step(self, work_s: float, frame_rate_hz: float) -> None:
        """Note its share of the time of a step; the decoding thread does."""
        drawn = max(0, self.progress.frames - self._most_frames)
        self._most_frames += drawn
        self._level_0_cost.note(work_s, drawn / frame_rate_hz)
        self.playback.worked_s += work_s
        worked_s = self._level_0_cost.work_s + self._sound_cost.work_s
        cost = self._level_0_cost.each + self._sound_cost.each
        if worked_s > _SLOW_AFTER_S and cost > 1.0:
            self.slow = True
        elif cost < _QUICK:
            self.slow = False

    def stream(self, capacity: Capacity) -> Stream:
        """Return its audio as admission counts it; what is held for its playback is ahead of it."""
        playback = self.playback
        usual = capacity.cost
        begun = playback.first_s is not None
        return Stream(
            playback.lead_s if begun else playback.audio_s,
            playback.left_s,
            self.first_s is not None,
            self._next_s(capacity),
            1.0 if self.usual or not usual else max(1.0, self.cost / usual),
            self.client,
            self.slow,
            self.made > 0 or bool(self.promised),
            bool(self.promised),
        )

    def _next_s(self, capacity: Capacity) -> float:
        """Return in how many seconds its next audio comes; 0 after its early chunks."""
        coming = max(0, self.made - 1)
        if coming >= len(self.first_chunks):
            return 0.0
        elapsed_s = 0.0 if self.first_s is None else monotonic() - self.first_s
        return max(0.0, capacity.chunk_s(self.first_chunks[coming].frames) - elapsed_s)

    def begin_sound(self, maker: AudioPart) -> None:
        """Have what makes its audio."""
        if self.sound is None and self.plan is not None:
            self.sound = maker.sound_stream(self.plan, self.playback)

    def next_chunk(self, maker: AudioPart) -> AudioChunk | None:
        """Return the next chunk of audio of the current message; None at its end."""
        if not self.audio:
            if self.replayed is not None:
                self.audio.append(maker.replay(self.replayed, self.playback))
            else:
                self._push(self.messages.popleft())
        chunk = next(self.audio[0], None)
        if chunk is None:
            self.audio.popleft()
        return chunk

    def push_queued(self) -> None:
        """Push all that is queued of the current utterance, so that it can be batched."""
        while self.messages and self.sound is not None and not (self.audio and self._ending):
            if self.messages[0].kind in {"failed", "started"}:
                return  # what begins with it is prepared in its turn
            self._push(self.messages.popleft())

    def _push(self, message: ArMessage | JobFailed) -> None:
        """Begin the audio of a message; raises the error with which the job ends."""
        if message.kind == "failed":
            raise message.error
        assert self.sound is not None
        self._ending = message.kind == "done"
        self.audio.append(self.sound.push(message))

    def count_audio(self, capacity: Capacity, work_s: float, audio_s: float) -> None:
        """Note what so many seconds of its audio cost, and how long the first took."""
        self._sound_cost.note(work_s + self.shared_s, audio_s)
        if self.usual:
            capacity.note_sound(work_s + self.shared_s, audio_s)
        self.shared_s = 0.0
        if audio_s:
            self.first_s = self.first_s or monotonic()
            self.made += 1
        if not self._begun and self.playback.first_s is not None:
            self._begun = True
            if self.alone and self.usual:
                capacity.note_start(max(0.0, self.playback.first_s - self._admitted_s))

    def close_sound(self) -> None:
        """Release what makes its audio."""
        if self.sound is not None:
            self.sound.close()


class JobQueue:
    """The jobs that are being planned, that wait, and that run. Thread-safe."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._planning: deque[RunningJob] = deque()
        self._waiting: list[RunningJob] = []
        self._running: set[RunningJob] = set()
        self._closed = self._woken = False
        self._changed = threading.Condition()
        self.free_rows = 0  # rows of the batch that no job has; kept up to date by the scheduler

    def __len__(self) -> int:
        """Count the jobs that are being planned or wait."""
        return len(self._planning) + len(self._waiting)

    @property
    def closed(self) -> bool:
        """Whether no job is admitted any more."""
        return self._closed

    @property
    def empty(self) -> bool:
        """Whether no job is being planned, waits or runs."""
        with self._changed:
            return not (self._planning or self._waiting or self._running)

    @property
    def running(self) -> frozenset[RunningJob]:
        """The jobs that were popped and are not done."""
        with self._changed:
            return frozenset(self._running)

    @property
    def waiting(self) -> Sequence[RunningJob]:
        """The jobs that are planned and do not run yet, in order."""
        with self._changed:
            return tuple(self._waiting)

    @property
    def left_s(self) -> list[float]:
        """Seconds of audio that are left of each job: planned, waiting, or in work."""
        with self._changed:
            jobs = [*self._planning, *self._waiting, *self._running]
        return [job.playback.left_s for job in jobs]

    def rows_left_for(self, client: str) -> bool:
        """Return whether rows are free beside the waiting jobs that go before one of a client.

        The first job of a client goes before further ones of those who have one running.
        """
        with self._changed:
            running = {job.client for job in self._running}
            behind = set() if client in running else running
            # How many rows one takes is known once it is planned; until then it counts for one.
            planned = sum(job.client not in behind for job in self._planning)
            waiting = sum(job.rows for job in self._waiting if job.client not in behind)
            return self.free_rows > planned + waiting

    def has(self, client: str) -> bool:
        """Return whether a client has a job here."""
        with self._changed:
            jobs = (*self._planning, *self._waiting, *self._running)
            return any(job.client == client for job in jobs)

    def admit(self, job: RunningJob) -> bool:
        """Add a job that is to be planned; return False if there is no place for its client."""
        with self._changed:
            own = sum(one.client == job.client for one in (*self._planning, *self._waiting))
            places, own_places = (n + self.free_rows for n in (self._limit, share(self._limit)))
            admitted = len(self) < places and own < own_places and not self._closed
            if admitted:
                self._planning.append(job)
            return admitted

    def enqueue(self, job: RunningJob, plan: Plan | None = None) -> None:
        """Let a job wait for the workers; no-op if it was removed while it was planned."""
        with self._changed:
            if job in self._planning:
                self._planning.remove(job)
                job.plan = plan
                self._waiting.append(job)
                self.wake()

    def remove(self, job: RunningJob) -> bool:
        """Remove a job that does not run yet; return False if it is not here."""
        with self._changed:
            for jobs in (self._planning, self._waiting):
                if job in jobs:
                    jobs.remove(job)
                    return True
            return False

    def pop(self, choose: Callable[[Sequence[RunningJob]], RunningJob | None]) -> RunningJob | None:
        """Return the next job, which then runs; None if there is none.

        ``choose`` returns one of the waiting jobs, given in order, or None if none can run yet.
        """
        with self._changed:
            job = None if self._closed or not self._waiting else choose(self._waiting)
            if job is not None:
                self._waiting.remove(job)
                self._running.add(job)
            return job

    def done(self, job: RunningJob) -> None:
        """Remove a job that ran."""
        with self._changed:
            self._running.discard(job)
            self.wake()

    def wait(self, at_most_s: float) -> None:
        """Wait for `enqueue`, `done` or `wake`; return at once if one came since the last wait."""
        with self._changed:
            if not self._woken and not self._closed:
                self._changed.wait(at_most_s)
            self._woken = False

    def wake(self) -> None:
        """End a wait."""
        with self._changed:
            self._woken = True
            self._changed.notify_all()

    def close(self) -> list[RunningJob]:
        """Admit and pop no more; return the jobs that did not run yet."""
        with self._changed:
            left = [*self._planning, *self._waiting]
            self._planning.clear()
            self._waiting.clear()
            self._closed = True
            self._changed.notify_all()
            return left


def _seconds(chunk: AudioChunk) -> float:
    return len(chunk.samples) / chunk.sample_rate_hz


class Outcomes:
    """Records how each job ended; of several calls for one job, the first counts. Any thread."""

    def __init__(self, metrics: EngineMetrics) -> None:
        self._metrics = metrics
        self.finished: Counter[FinishReason] = Counter()  # without replays

    def refused(self, job: RunningJob, error: SpeechError) -> None:
        """Record that a job was refused, and give its reader the error."""
        if job.close():
            log.info("job %s: refused (%s)", job.id, error.code)
            job.send(error)

    def ended(
        self, job: RunningJob, reason: FinishReason, error: SpeechError | None = None
    ) -> None:
        """Record that a job ended without a result, and give its reader the error.

        There is none if the reader has left, or the engine stops.
        """
        if not job.close():
            return
        self.finished[reason] += 1
        self._metrics.jobs.labels(reason).inc()
        log.info("job %s: %s%s", job.id, reason, f" ({error.code})" if error else "")
        job.send(error or EngineNotReady("not ready: it is shutting down", retry_after_s=5))

    def completed(self, job: RunningJob, result: SpeechResult) -> None:
        """Record the result of a job, before its reader gets the last chunk."""
        if not job.close():
            return
        if job.replayed is not None:
            log.info("job %s: replay of job %s", job.id, result.job_id)
            return
        timings = result.timings
        work_s = timings.total_s - timings.queue_s
        self.finished[result.finish_reason] += 1
        self._measure(result, played=job.playback.played)
        log.info(
            "job %s: %s, seed %d, %.2f s of audio, %.2f s in the queue, %.2f s of work, "
            "%.2f s stalled",
            *(result.job_id, result.finish_reason, result.seed, result.audio_s),
            *(timings.queue_s, work_s, timings.underrun_s),
        )

    def _measure(self, result: SpeechResult, *, played: bool) -> None:
        metrics = self._metrics
        timings = result.timings
        metrics.jobs.labels(result.finish_reason).inc()
        metrics.backtracks.inc(result.backtracks)
        metrics.queue_s.observe(timings.queue_s)
        metrics.audio_s.inc(result.audio_s)
        # Steps of level 0 are shared by jobs: the scheduler counts them.
        for stage in ("text", "nar", "codec"):
            metrics.stage_s.labels(stage).inc(getattr(timings, f"{stage}_s"))
        if result.audio_s:
            metrics.first_audio_s.observe(timings.first_audio_s)
            metrics.real_time_factor.observe(result.real_time_factor)
        if result.audio_s and played:  # of what is sent whole nobody hears a gap
            metrics.underrun_s.inc(timings.underrun_s)
            metrics.continuous.labels("no" if timings.underrun_s else "yes").inc()

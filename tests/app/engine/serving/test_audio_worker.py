"""Whether there is capacity for one more stream, and when an abandoned job ends."""

import asyncio
import math
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from time import monotonic
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
import torch

from app.engine.admission.cost_model import SHARE, CostModel
from app.engine.admission.playback import Playback
from app.engine.admission.text_pace import KnownText, TextPace
from app.engine.core import AudioChunk, SpeechJob
from app.engine.interface import FirstChunk
from app.engine.messages import ArMessage, FramesReady, UtteranceDone, UtteranceStarted
from app.engine.serving.audio_work import AudioProgress
from app.engine.serving.audio_worker import AudioWorker
from app.engine.serving.metrics import EngineMetrics
from app.engine.serving.outcomes import JobLog
from app.engine.serving.running import JobHandle
from app.engine.utterance import UtteranceSpec
from samplers.knobs.params import SamplingParams
from tests.fakes import FakeBackend

pytestmark = pytest.mark.anyio

Early = tuple[FirstChunk, ...]
PLAIN: Early = (FirstChunk(15, 0.2), FirstChunk(45, 0.4))
REWINDS: Early = (FirstChunk(90, 0.2), FirstChunk(120, 0.4))
LAGS: Early = (FirstChunk(30, 0.2), FirstChunk(150, 0.4))


def new_job(
    *,
    played: bool = True,
    submitted_s: float | None = None,
    expected_s: float = 1.0,
    client: str = "",
) -> JobHandle:
    job = JobHandle("a job", 60.0, lambda _: None, played=played, client=client)
    job.plan = FakeBackend().plan(SpeechJob("a job", "Hi.", SamplingParams()))
    job.playback = Playback(monotonic() if submitted_s is None else submitted_s, played=played)
    job.playback.expected_s = expected_s
    return job


def new_worker(capacity: CostModel, over: list[Any] | None = None) -> AudioWorker:
    ended = [] if over is None else over
    return AudioWorker(JobLog(EngineMetrics()), capacity, on_end=ended.append)


def join(
    worker: AudioWorker,
    sound_s: float = 0.0,
    *,
    left_s: float = 5.0,
    played: bool = True,
    early: Early = REWINDS,
    made: int = 0,
) -> JobHandle:
    """Begin a job with so much audio ahead of its listener, and more to be made."""
    job = new_job(played=played)
    job.playback.expected_s = sound_s + left_s
    job.playback.add(sound_s)
    job.audio.stream = Frames("", [], first_chunks=early)
    job.audio.progress = AudioProgress(early, made, monotonic() if sound_s else None)
    worker.begin(job)
    return job


@pytest.fixture
def audio_worker() -> AudioWorker:
    capacity = CostModel()
    capacity.note_audio(SHARE / 3.1, 1.0)  # three streams can be served
    return new_worker(capacity)


async def test_as_many_streams_fit_as_can_be_served_in_real_time(audio_worker) -> None:
    for _ in range(20):
        join(audio_worker, played=False)  # what is sent whole gives way
    for _ in range(5):
        join(audio_worker, 5.0, left_s=-5.0)  # as what is complete takes nothing
    for _ in range(3):
        assert audio_worker.has_room_for(new_job(expected_s=5.0))
        join(audio_worker, early=())
    assert not audio_worker.has_room_for(new_job(expected_s=5.0))


async def test_a_stream_whose_text_is_not_written_takes_no_room(audio_worker) -> None:
    for _ in range(3):
        writing = join(audio_worker, 5.0, early=())
        writing.ar.stream = cast("Any", SimpleNamespace(waits=True))
    assert audio_worker.has_room_for(new_job(expected_s=5.0))
    for _ in range(3):
        join(audio_worker, early=())
    assert not audio_worker.has_room_for(new_job(expected_s=5.0))


STEP_S, CHUNK_S = 0.003, 0.02


@pytest.fixture
def slow_second() -> tuple[AudioWorker, CostModel]:
    """A worker whose streams get their second audio 0.3 s after the first, if they rewind."""
    capacity = CostModel()
    capacity.note_ar(STEP_S * SHARE, 0.1)
    capacity.note_audio(CHUNK_S, 1.0)
    capacity.note_admission(0.01)
    return new_worker(capacity), capacity


@pytest.mark.parametrize(
    ("early", "made", "steps", "played_s"),
    [
        (PLAIN, 0, 15, 0.0),
        (REWINDS, 0, 90, 0.0),
        (LAGS, 0, 150, 0.2),  # the third chunk, while the second is played
        (LAGS, 1, 120, 0.0),
    ],
)
async def test_a_playback_begins_with_as_much_as_its_latest_early_chunk_needs(
    slow_second, early: Early, made: int, steps: int, played_s: float
) -> None:
    worker, _ = slow_second
    needed_s = steps * STEP_S + CHUNK_S - played_s
    job = join(worker, left_s=0.0, early=early, made=made)
    assert worker.prebuffer_s(job) == pytest.approx(needed_s)


@pytest.mark.parametrize(("early", "made"), [((), 0), (REWINDS, 2)])
async def test_what_comes_at_once_or_was_made_needs_nothing_buffered(
    slow_second, early: Early, made: int
) -> None:
    worker, _ = slow_second
    assert worker.prebuffer_s(join(worker, left_s=0.0, early=early, made=made)) == 0.0


@pytest.mark.parametrize(
    ("others", "waited_for"),
    [
        ([(0.0, True), (0.15, True), (5.0, True)], 3),  # the last may have one chunk that has begun
        ([(0.0, False)] * 5, 1),
    ],
)
async def test_a_playback_waits_for_the_chunks_of_those_that_are_due_before(
    slow_second, others: list[tuple[float, bool]], waited_for: int
) -> None:
    worker, capacity = slow_second
    job = join(worker, left_s=0.0)
    alone_s = worker.prebuffer_s(job)
    for lead_s, played in others:
        join(worker, lead_s, played=played)
    assert worker.prebuffer_s(job) == pytest.approx(alone_s + capacity.delay_s(waited_for))


async def test_nobody_begins_before_the_second_audio_of_a_listener_who_has_little(
    slow_second,
) -> None:
    worker, capacity = slow_second
    job = join(worker, 0.2)
    assert not worker.has_room_for(new_job(expected_s=1.0))
    job.audio.progress = replace(job.audio.progress, made=1 + len(REWINDS))
    assert capacity.delay_s(1) < 0.2
    assert worker.has_room_for(new_job(expected_s=1.0))


@pytest.mark.parametrize(
    ("made", "since_s", "frames"),
    [(0, 0.0, 90), (1, 0.1, 90), (2, 0.1, 120), (3, 0.1, 0), (1, 60.0, 0)],
)
async def test_the_next_audio_of_a_job_is_the_early_chunk_that_comes_next(
    slow_second, made: int, since_s: float, frames: int
) -> None:
    worker, capacity = slow_second
    job = join(worker, 0.2, made=made)
    job.audio.progress = replace(job.audio.progress, first_s=monotonic() - since_s)
    left_s = capacity.chunk_s(frames) - since_s if frames else 0.0
    assert job.stream(capacity).next_s == pytest.approx(left_s, abs=0.05)


async def test_an_abandoned_job_ends_at_once_whatever_the_worker_does() -> None:
    over: list[JobHandle] = []
    worker = new_worker(CostModel(), over)
    left, stays = new_job(), new_job()
    worker.begin(left)
    worker.begin(stays)
    worker.wake()
    assert not over
    left.abandon("cancelled")
    worker.wake()
    worker.wake()
    assert over == [left]
    assert (await sent(left), await sent(stays)) == (1, 0)
    worker.put((left, cast("Any", "a frame that is on its way")))
    stays.abandon("cancelled")
    worker.wake()
    worker.close()
    worker.run(cast("Any", None))  # returns: no job is left
    assert over == [left, stays]


async def sent(job: JobHandle) -> int:
    """Return how many chunks and errors the reader has got."""
    await asyncio.sleep(0)
    return job.reader.chunks.qsize()


REST = 7  # frames of an utterance that ends


@dataclass(eq=False)
class Frames:
    """A stream that makes a chunk of what it was given, alone or with others."""

    name: str
    log: list[str]
    given: int = 0
    made: int = 0
    first_chunks: Early = ()
    playback: Playback = field(default_factory=lambda: Playback(0.0))

    def push(self, message: ArMessage) -> Iterator[AudioChunk]:
        if message.kind != "started":
            self.given += len(message.codes) if message.kind == "frames" else REST
        return self._audio()

    def _audio(self) -> Iterator[AudioChunk]:
        if not self.made and self.given:
            self.log.append(f"{self.name} alone")
            self.make()
        if self.made:
            samples, self.made = np.zeros(self.made, np.float32), 0
            self.playback.add(len(samples) / 24_000)
            yield AudioChunk(samples, 24_000)

    def make(self) -> None:
        self.made, self.given = self.made + self.given, 0

    def close(self) -> None:
        pass


@dataclass
class Together:
    """A backend that makes chunks of all streams with frames at once, if the first has some."""

    log: list[str] = field(default_factory=list)
    chunks_at_once: int = 3
    broken: bool = False
    streams: int = 0

    def audio_stream(self, plan: object, playback: Playback) -> Frames:
        self.streams += 1
        return Frames(str(self.streams - 1), self.log, playback=playback)

    def replay(self, result: object, playback: Playback) -> Iterator[AudioChunk]:
        raise Idle

    def make_together(self, streams: Sequence[Frames]) -> Sequence[Frames]:
        if not streams[0].given:
            return ()
        if self.broken:
            raise RuntimeError("broken on purpose")
        waiting = [one for one in streams if one.given]
        self.log.append("+".join(f"{one.name}:{one.given}" for one in waiting))
        for one in waiting:
            one.make()
        return waiting


BEGIN = UtteranceStarted(UtteranceSpec([1, 2], SamplingParams(), 0, 0, 99))
BLOCK = FramesReady(torch.zeros(15, dtype=torch.int64))


def working(
    backend: Together, jobs: int, over: list[Any], capacity: CostModel | None = None
) -> tuple[AudioWorker, list[JobHandle]]:
    """Return a worker whose jobs have begun an utterance, the most urgent first."""
    worker = new_worker(capacity or CostModel(), over)
    # Of no known length: on a busy machine their few samples would be held back.
    begun = [new_job(submitted_s=float(number), expected_s=0.0) for number in range(jobs)]
    for job in begun:
        worker.begin(job)
        worker.put((job, BEGIN))
    run(worker, backend)
    backend.log.clear()
    return worker, begun


class Idle(BaseException):
    """Ends a worker that has nothing else to do."""


def run(worker: AudioWorker, backend: Together) -> None:
    """Let a worker do what there is: a replay, the least urgent job, ends it."""
    last = JobHandle("last", 60.0, lambda _: None, played=False, replayed=cast("Any", "a result"))
    last.playback = Playback(math.inf, played=False)
    worker.begin(last)
    with suppress(Idle):
        worker.run(cast("Any", backend))
    last.abandon("cancelled")
    worker.wake()


async def test_the_chunks_of_the_most_urgent_jobs_are_made_together() -> None:
    backend = Together()
    worker, jobs = working(backend, 4, [])
    for number, job in enumerate(jobs):
        for _ in range(1 + number):
            worker.put((job, BLOCK))
    run(worker, backend)
    assert backend.log == ["0:15+1:30+2:45", "3:60"]  # with all frames that waited
    await asyncio.sleep(0)
    heard = [await job.reader.chunks.get() for job in jobs]
    lengths = [len(one.samples) for one in heard if isinstance(one, AudioChunk)]
    assert lengths == [15, 30, 45, 60]


async def test_of_one_at_a_time_each_is_made_in_its_turn() -> None:
    backend = Together(chunks_at_once=1)
    worker, jobs = working(backend, 2, [])
    for job in jobs:
        worker.put((job, BLOCK))
        worker.put((job, BLOCK))
    run(worker, backend)
    assert sorted(backend.log) == ["0 alone"] * 2 + ["1 alone"] * 2


async def test_frames_of_the_next_utterance_wait_for_the_end_of_this_one() -> None:
    backend = Together()
    worker, (first, other) = working(backend, 2, [])
    worker.put((first, BLOCK))
    for item in (UtteranceDone("stop"), BEGIN, BLOCK):
        worker.put((other, item))
    run(worker, backend)
    assert backend.log == [f"0:15+1:{REST}", "1:15"]


async def test_an_error_ends_the_jobs_that_took_part_and_no_other() -> None:
    over: list[JobHandle] = []
    backend = Together()
    worker, jobs = working(backend, 4, over)
    over.clear()
    for job in jobs[:2]:
        worker.put((job, BLOCK))
    backend.broken = True
    run(worker, backend)
    assert over[:2] == jobs[:2]
    backend.broken = False
    worker.put((jobs[3], BLOCK))
    run(worker, backend)
    assert await sent(jobs[3]) == 1
    assert not {*over} & {*jobs[2:]}


async def test_a_stream_that_gave_way_is_promised_its_audio_once_it_plays() -> None:
    capacity = CostModel()
    capacity.note_audio(SHARE / 1.1, 1.0)  # one stream can be served
    worker = new_worker(capacity)
    join(worker, early=())
    job = new_job(expected_s=15 / 24_000)
    worker.begin(job)
    assert job.promised is False
    assert job.playback.gives_way
    worker.put((job, BEGIN), (job, BLOCK))
    run(worker, Together())
    assert job.playback.first_s is not None
    assert job.promised is True
    assert not job.playback.gives_way


async def test_audio_is_held_until_the_playback_can_begin() -> None:
    capacity = CostModel()
    worker, (job,) = working(Together(), 1, [], capacity)
    job.audio.progress = replace(job.audio.progress, first_chunks=REWINDS)
    capacity.note_ar(STEP_S, 0.1)
    worker.put((job, BLOCK))
    run(worker, Together())
    assert job.playback.prebuffer_s > 30 * STEP_S  # from the second of the early chunks on
    assert await sent(job) == 0


def typed(chars: int, every_s: float) -> TextPace:
    """Packets that came so often until now."""
    pace = TextPace()
    pace.note(chars)
    pace._first_s -= every_s
    pace.note(chars)
    return pace


async def begun(pace: TextPace, known: KnownText, lead_s: float = 0.0) -> JobHandle:
    """Make the first chunk of a text that is still written."""
    worker, (job,) = working(Together(), 1, [])
    job.pace = pace
    job.known = known
    job.lead_until_s = monotonic() + lead_s
    job.audio.progress = replace(job.audio.progress, first_chunks=(FirstChunk(30, 0.2, 0.6),))
    worker.put((job, BLOCK))
    run(worker, Together())
    return job


@pytest.mark.parametrize(
    ("known", "lead_s", "chunks"),
    [
        (KnownText(0.2, 0.06), 0.0, 0),
        (KnownText(0.2, 0.06), 60.0, 1),
        (KnownText(0.2, 0.06, whole=True), 0.0, 1),
        (KnownText(2.0, 0.06), 0.0, 1),
    ],
    ids=["too slow", "earlier sound is played", "all of it is there", "enough is there"],
)
async def test_audio_of_a_text_that_comes_slowly_is_held_if_a_gap_would_be_heard(
    known, lead_s, chunks
) -> None:
    slow = typed(17, 0.5)  # some two seconds of speech a second
    assert await sent(await begun(slow, known, lead_s)) == chunks


@pytest.mark.parametrize(("sampled_s", "chunks"), [(0.2, 0), (0.9, 1)])
async def test_audio_of_a_text_that_comes_slowly_is_sent_once_enough_of_it_is_sampled(
    sampled_s, chunks
) -> None:
    worker, (job,) = working(Together(), 1, [])
    job.pace = typed(17, 0.5)
    job.known = KnownText(0.2, 0.06)
    job.ar.sampled_s = sampled_s
    job.audio.progress = replace(job.audio.progress, first_chunks=(FirstChunk(30, 0.2, 0.6),))
    worker.put((job, BLOCK))
    run(worker, Together())
    assert await sent(job) == chunks


async def test_audio_that_waited_for_text_is_sent_once_that_is_whole() -> None:
    worker, (job,) = working(Together(), 1, [])
    job.pace = typed(1, 5.0)
    job.known = KnownText(0.2, 0.06)
    job.audio.progress = replace(job.audio.progress, first_chunks=(FirstChunk(30, 0.2, 0.6),))
    worker.put((job, BLOCK))
    run(worker, Together())
    assert (await sent(job), job.playback.first_s) == (0, None)
    job.known = KnownText(0.2, 0.06, whole=True)
    run(worker, Together())
    assert await sent(job) == 1
    assert job.playback.first_s is not None
    assert job.promised

"""Whether there is capacity for one more stream, and when an abandoned job ends."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from time import monotonic
from typing import Any, cast

import numpy as np
import pytest
import torch

from app.engine.capacity import SHARE, Capacity
from app.engine.interface import EarlyChunk, Plan
from app.engine.job import AudioChunk
from app.engine.playback import Playback
from app.engine.serving.metrics import EngineMetrics
from app.engine.serving.outcomes import Outcomes
from app.engine.serving.sound_worker import SoundWorker
from app.engine.utterance import Level0Chunk, UtteranceEnd


@dataclass(eq=False)
class Listener:
    """The part of a ticket that the worker uses; a ticket itself needs an event loop."""

    playback: Playback
    abandoned: str | None = None
    job_id: str = "a job"
    sent: list[Any] = field(default_factory=list)
    priority: int = 0
    paused_s: float = 0.0
    work: object = None

    def close(self) -> bool:
        return not self.sent

    def send(self, item: object) -> None:
        self.sent.append(item)


PLAN = replace(Plan(*[cast("Any", None)] * 7), early=(EarlyChunk(15, 0.2), EarlyChunk(45, 0.4)))
REWINDS = replace(PLAN, early=(EarlyChunk(90, 0.2), EarlyChunk(120, 0.4)))
LAGS = replace(PLAN, early=(EarlyChunk(30, 0.2), EarlyChunk(150, 0.4)))


@pytest.fixture
def sound_worker() -> SoundWorker:
    capacity = Capacity()
    capacity.note_sound(SHARE / 3.1, 1.0)  # three streams can be served
    return SoundWorker(cast("Any", None), capacity, on_end=lambda _: None, stall_timeout_s=1.0)


def join(
    sound_worker: SoundWorker, sound_s: float = 0.0, *, left_s: float = 5.0, played: bool = True
) -> None:
    """Begin a job with so much audio ahead of its listener, and more to be made."""
    playback = Playback(monotonic(), played=played)
    playback.expected_s = sound_s + left_s
    playback.add(sound_s)
    sound_worker.begin(cast("Any", Listener(playback, work=REWINDS)))


def test_as_many_streams_fit_as_can_be_served_in_real_time(sound_worker: SoundWorker) -> None:
    for _ in range(3):
        assert sound_worker.has_room_for(5.0)
        join(sound_worker)
    assert not sound_worker.has_room_for(5.0)
    assert 0 < sound_worker.wait_s(5.0, [])[0] <= sound_worker.wait_s(5.0, [5.0])[0]


def test_a_job_whose_audio_is_complete_takes_no_capacity(sound_worker: SoundWorker) -> None:
    for _ in range(5):
        join(sound_worker, 5.0, left_s=-5.0)
    for _ in range(3):
        assert sound_worker.has_room_for(5.0)
        join(sound_worker)
    assert not sound_worker.has_room_for(5.0)


def test_a_speech_sent_whole_takes_no_capacity_from_streams(sound_worker: SoundWorker) -> None:
    for _ in range(20):
        join(sound_worker, played=False)
    assert sound_worker.has_room_for(5.0)


STEP_S, CHUNK_S = 0.003, 0.02


@pytest.fixture
def slow_second() -> tuple[SoundWorker, Capacity]:
    """A worker whose streams get their second audio 0.3 s after the first, if they rewind."""
    capacity = Capacity()
    capacity.note_level_0(STEP_S * SHARE, 0.1)
    capacity.note_sound(CHUNK_S, 1.0)
    capacity.note_admission(0.01)
    worker = SoundWorker(cast("Any", None), capacity, on_end=lambda _: None, stall_timeout_s=1.0)
    return worker, capacity


def begun(worker: SoundWorker, plan: Plan, made: int = 0) -> float:
    """Begin a job, and return the seconds of audio with which its playback can begin."""
    worker.begin(ticket := cast("Any", Listener(Playback(monotonic()), work=plan)))
    worker._jobs[ticket].made = made
    return worker._prebuffer_s(worker._jobs[ticket])


@pytest.mark.parametrize(
    ("plan", "made", "steps", "played_s"),
    [
        (PLAN, 0, 15, 0.0),
        (REWINDS, 0, 90, 0.0),
        (LAGS, 0, 150, 0.2),  # the third chunk, while the second is played
        (LAGS, 1, 120, 0.0),
    ],
)
def test_a_playback_begins_with_as_much_as_its_latest_early_chunk_needs(
    slow_second, plan: Plan, made: int, steps: int, played_s: float
) -> None:
    worker, _ = slow_second
    needed_s = steps * STEP_S + CHUNK_S - played_s
    assert begun(worker, plan, made) == pytest.approx(needed_s)


@pytest.mark.parametrize("plan", [replace(PLAN, early=()), REWINDS])
def test_what_comes_at_once_or_was_made_needs_nothing_buffered(slow_second, plan: Plan) -> None:
    worker, _ = slow_second
    assert begun(worker, plan, made=len(plan.early)) == 0.0


def test_a_playback_waits_for_the_chunks_of_those_that_are_due_before(slow_second) -> None:
    worker, capacity = slow_second
    alone_s = begun(worker, REWINDS)
    worker._jobs.clear()
    for lead_s in (0.0, 0.15, 5.0):  # the last may have one chunk that has begun
        join(worker, lead_s)
    assert begun(worker, REWINDS) == pytest.approx(alone_s + capacity.delay_s(3))


def test_of_jobs_that_give_way_one_chunk_at_most_is_waited_for(slow_second) -> None:
    worker, capacity = slow_second
    alone_s = begun(worker, REWINDS)
    worker._jobs.clear()
    for _ in range(5):
        join(worker, played=False)
    assert begun(worker, REWINDS) == pytest.approx(alone_s + capacity.delay_s(1))


def test_the_audio_of_a_job_is_counted_and_held_until_its_playback_can_begin() -> None:
    worker, (ticket,) = working(Together(), 1, [])
    ticket.playback = Playback(monotonic())
    ticket.work = REWINDS
    worker._jobs[ticket].early = REWINDS.early
    worker._capacity.note_level_0(STEP_S, 0.1)
    worker.put(ticket, BLOCK)
    run_dry(worker, Together())
    job = worker._jobs[ticket]
    assert job.ticket.playback.prebuffer_s > 90 * STEP_S


def test_nobody_begins_before_the_second_audio_of_a_listener_who_has_little(slow_second) -> None:
    worker, capacity = slow_second
    join(worker, 0.2)
    assert not worker.has_room_for(1.0)
    (job,) = worker._jobs.values()
    job.made = 1 + len(job.early)
    assert capacity.blocking_s < 0.2
    assert worker.has_room_for(1.0)


def test_the_next_audio_of_a_job_is_the_early_chunk_that_comes_next(slow_second) -> None:
    worker, capacity = slow_second
    join(worker, 0.2)
    (job,) = worker._jobs.values()
    assert job.next_s(capacity) == capacity.chunk_s(90)
    job.first_s = monotonic() - 0.1
    for job.made, frames in ((1, 90), (2, 120)):
        elapsed_s = monotonic() - job.first_s
        left_s = capacity.chunk_s(frames) - elapsed_s
        assert job.next_s(capacity) == pytest.approx(left_s, abs=0.05)
    job.made = 3
    assert job.next_s(capacity) == 0.0
    job.made, job.first_s = 1, monotonic() - 60.0
    assert job.next_s(capacity) == 0.0


def test_an_abandoned_job_ends_at_once_whatever_the_worker_does() -> None:
    over: list[object] = []
    sound_worker = SoundWorker(
        Outcomes(EngineMetrics()), Capacity(), on_end=over.append, stall_timeout_s=1.0
    )
    left, stays = (cast("Any", Listener(Playback(monotonic()))) for _ in range(2))
    sound_worker.begin(left)
    sound_worker.begin(stays)
    sound_worker.wake()
    assert not over
    left.abandoned = "cancelled"
    sound_worker.wake()
    sound_worker.wake()
    assert over == [left]
    assert len(left.sent) == 1
    assert not stays.sent
    sound_worker.put(left, cast("Any", "a frame that is on its way"))
    stays.abandoned = "cancelled"
    sound_worker.wake()
    sound_worker.close()
    sound_worker.run(cast("Any", None))  # returns: no job is left
    assert over == [left, stays]


@dataclass(eq=False)
class Frames:
    """A stream that makes a chunk of what it was given, alone or with others."""

    name: str
    log: list[str]
    given: int = 0
    made: int = 0

    def push(self, level_0: Level0Chunk) -> Iterator[AudioChunk]:
        self.given += len(level_0.codes)
        return self._audio()

    def _audio(self) -> Iterator[AudioChunk]:
        if not self.made and self.given:
            self.log.append(f"{self.name} alone")
            self.make()
        if self.made:
            samples, self.made = np.zeros(self.made, np.float32), 0
            yield AudioChunk(samples, 24_000)

    def make(self) -> None:
        self.made, self.given = self.made + self.given, 0

    def close(self) -> None:
        pass


@dataclass
class Together:
    """A backend that makes chunks of all streams with frames at once, if the first has some."""

    log: list[str] = field(default_factory=list)
    streams: dict[Playback, Frames] = field(default_factory=dict)
    chunks_at_once: int = 3
    broken: bool = False

    def sound_stream(self, plan: object, playback: Playback) -> Frames:
        stream = Frames(str(len(self.streams)), self.log)
        self.streams[playback] = stream
        return stream

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


BEGIN = Level0Chunk(0, None, torch.zeros(0, dtype=torch.int64))
BLOCK = Level0Chunk(0, None, torch.zeros(15, dtype=torch.int64))


def working(backend: Together, streams: int, over: list[object]) -> tuple[SoundWorker, list[Any]]:
    """Return a worker whose jobs have begun an utterance, the most urgent first."""
    worker = SoundWorker(
        Outcomes(EngineMetrics()), Capacity(), on_end=over.append, stall_timeout_s=1.0
    )
    tickets = [
        cast("Any", Listener(Playback(float(number)), work=PLAN)) for number in range(streams)
    ]
    for ticket in tickets:
        worker.begin(ticket)
        worker.put(ticket, BEGIN)
    run_dry(worker, backend)
    backend.log.clear()
    return worker, tickets


def run_dry(worker: SoundWorker, backend: Together) -> None:
    """Let a worker do what there is."""
    while any(job.ready for job in worker._jobs.values()):
        for job in worker._prepared(cast("Any", backend), worker._next()):
            worker._work_on(cast("Any", backend), job)


def test_the_chunks_of_the_most_urgent_jobs_are_made_together() -> None:
    backend = Together()
    worker, tickets = working(backend, 4, [])
    for number, ticket in enumerate(tickets):
        for _ in range(1 + number):
            worker.put(ticket, BLOCK)
    run_dry(worker, backend)

    assert backend.log == ["0:15+1:30+2:45", "3:60"]  # with all frames that waited
    assert [sum(len(chunk.samples) for chunk in ticket.sent) for ticket in tickets] == [
        15, 30, 45, 60,
    ]  # fmt: skip


def test_of_one_at_a_time_each_is_made_in_its_turn() -> None:
    backend = Together(chunks_at_once=1)
    worker, tickets = working(backend, 2, [])
    for ticket in tickets:
        worker.put(ticket, BLOCK)
        worker.put(ticket, BLOCK)
    run_dry(worker, backend)
    assert sorted(backend.log) == ["0 alone"] * 2 + ["1 alone"] * 2


def test_frames_of_the_next_utterance_wait_for_the_end_of_this_one() -> None:
    backend = Together()
    worker, (first, other) = working(backend, 2, [])
    worker.put(first, BLOCK)
    for item in (replace(BLOCK, ending=UtteranceEnd("stop", last=False)), BEGIN, BLOCK):
        worker.put(other, item)
    run_dry(worker, backend)
    assert backend.log == ["0:15+1:15", "1:15"]


def test_an_error_ends_the_jobs_that_took_part_and_no_other() -> None:
    over: list[object] = []
    backend = Together()
    worker, tickets = working(backend, 4, over)
    for ticket in tickets:
        ticket.abandon = lambda _: None
    for ticket in tickets[:2]:
        worker.put(ticket, BLOCK)
    backend.broken = True
    run_dry(worker, backend)
    assert over == tickets[:2]
    backend.broken = False
    worker.put(tickets[3], BLOCK)
    run_dry(worker, backend)
    assert len(tickets[3].sent) == 1

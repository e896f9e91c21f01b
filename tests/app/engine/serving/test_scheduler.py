"""Which jobs are stepped, by how much speech each has ahead; who begins: nobody takes all rows."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from app.engine.admission.cost_model import CostModel
from app.engine.admission.quota import share
from app.engine.core import AudioChunk, Plan, SpeechJob
from app.engine.errors import EngineBusy, InvalidRequest
from app.engine.serving.audio_worker import AudioWorker
from app.engine.serving.job_queue import JobQueue
from app.engine.serving.metrics import EngineMetrics
from app.engine.serving.outcomes import JobLog
from app.engine.serving.reader import MAX_UNREAD_S
from app.engine.serving.running import JobHandle
from app.engine.serving.scheduler import AHEAD_S, LATE_S, MAX_WAITING_S, RowPolicy, Scheduler
from samplers.knobs.params import SamplingParams
from tests.fakes import FakeBackend, fake_engine

pytestmark = pytest.mark.anyio


class Stepped(BaseException):
    """Ends a scheduler after its first step."""


class Recorder:
    """A batch whose jobs have sampled what they are told to; it notes whom the first step is of."""

    def __init__(self, sampled_s: Sequence[float]) -> None:
        self._sampled_s = sampled_s
        self.stepped: list[int] = []

    def begin(self, plan: Plan, on_chunk: object) -> SimpleNamespace:
        number = int(plan.job.id)
        return SimpleNamespace(
            number=number, ready_s=self._sampled_s[number], frames=0, waits=False
        )

    def step(self, streams: Sequence[SimpleNamespace]) -> None:
        self.stepped = sorted(one.number for one in streams)
        raise Stepped


def given(
    *,
    made_s: float | None = None,
    priority: int = 0,
    unread_s: float = 0.0,
    played: bool = True,
    sampled_s: float = 0.0,
) -> tuple[float, JobHandle]:
    """Return a job that has sampled so much speech, and what was made of it."""
    job = JobHandle("a job", 60.0, lambda _: None, played=played)
    job.plan = FakeBackend().plan(SpeechJob("a job", "Hi.", SamplingParams(), priority=priority))
    job.playback.audio_s = sampled_s if made_s is None else made_s
    if unread_s:
        job.playback.begin()  # so that what is sent is not held
        job.send(AudioChunk(np.zeros(round(unread_s), np.float32), 1))
    return sampled_s, job


def scheduled(
    *jobs: tuple[float, JobHandle],
    capacity: CostModel | None = None,
    fits: Callable[..., bool] = lambda *_: True,
) -> tuple[list[int], JobQueue]:
    """Return which of some jobs the first step is of, and the queue after it."""
    queue, capacity = JobQueue(len(jobs)), capacity or CostModel()
    queue.free_rows = 2 * len(jobs)
    sound = AudioWorker(JobLog(EngineMetrics()), capacity, on_end=lambda _: None)
    scheduler = Scheduler(queue, sound, capacity, EngineMetrics(), slots=2 * len(jobs))
    for number, (_, job) in enumerate(jobs):
        assert queue.admit(job)
        plan = job.plan
        queue.enqueue(job, plan and replace(plan, job=replace(plan.job, id=str(number))))
    batch = Recorder([sampled_s for sampled_s, _ in jobs])
    with pytest.raises(Stepped):
        scheduler.run(cast("Any", batch), 75.0, 0.01, fits)
    return batch.stepped, queue


@pytest.mark.parametrize(
    ("jobs", "stepped"),
    [
        pytest.param(
            [{"sampled_s": LATE_S}, {"sampled_s": 2 * AHEAD_S}], [0, 1], id="all while none is late"
        ),
        pytest.param(
            [{"sampled_s": 0.0}, {"sampled_s": AHEAD_S}, {"sampled_s": AHEAD_S - 0.1}],
            [0, 2],
            id="not one far ahead while another is late",
        ),
        pytest.param(
            [{"sampled_s": 2 * AHEAD_S, "played": False}, {"played": False}],
            [1],
            id="of those sent whole the new one before those that have seconds",
        ),
        pytest.param(
            [{"priority": 1}, {"priority": 0}], [1], id="not one of less priority beside a late one"
        ),
        pytest.param(
            [{"priority": 1}, {"priority": 0, "sampled_s": LATE_S}], [0, 1], id="else both"
        ),
        pytest.param(
            [{"sampled_s": 1.0, "unread_s": MAX_UNREAD_S + 1}, {"sampled_s": 2.0}],
            [1],
            id="not one that pauses",
        ),
        pytest.param(
            [{"sampled_s": MAX_WAITING_S + 0.1, "made_s": 0.0}, {"sampled_s": 2.0}],
            [1],
            id="not one far ahead of its sound",
        ),
    ],
)
async def test_a_step_is_of_the_jobs_with_the_least_speech_ahead(
    jobs: list[dict[str, Any]], stepped: list[int]
) -> None:
    found, _ = scheduled(*(given(**one) for one in jobs))
    assert found == stepped


async def test_a_job_that_would_make_others_stall_waits_but_no_replay_and_none_sent_whole() -> None:
    slow = CostModel()
    slow.note_audio(10.0, 1.0)
    replay = JobHandle("again", 60.0, lambda _: None, replayed=cast("Any", "a result"))
    listeners = [given(), given()]
    for _, job in listeners:
        job.playback.expected_s = 5.0
    whole = given(played=False)
    _, queue = scheduled(listeners[0], whole, listeners[1], (0.0, replay), capacity=slow)
    assert queue.running == {listeners[0][1], whole[1], replay}
    assert list(queue.waiting) == [listeners[1][1]]


async def test_a_job_waits_while_memory_does_not_hold_it_beside_those_that_run() -> None:
    asked: list[Any] = []

    def fits(plan: Plan, running: list[Plan]) -> bool:
        asked.append((plan, list(running)))
        return len(asked) == 2

    first, second = given(), given()
    stepped, queue = scheduled(first, second, fits=fits)
    assert asked[0] == (first[1].plan, [])
    assert asked[-1] == (second[1].plan, [first[1].plan])
    assert (stepped, list(queue.waiting)) == ([0], [second[1]])


SLOTS, KEPT = 20, 4


@dataclass(eq=False)
class JobInQueue:
    """A job of which only the choice is asked."""

    client: str
    rows: int
    priority: int


def waiting_job(client: str, rows: int = 1, priority: int = 0) -> JobHandle:
    """Return what the choice asks of a job, which needs an event loop."""
    return cast("JobHandle", JobInQueue(client, rows, priority))


def begun(
    waiting: list[JobHandle], running: list[JobHandle], slots: int = SLOTS
) -> list[JobHandle]:
    """Let in who may come in, one after the other; return them in that order."""
    shares, left, order = RowPolicy(slots), list(waiting), list[JobHandle]()
    while (one := shares.next(left, [*running, *order])) is not None:
        left.remove(one)
        order.append(one)
    return order


@pytest.mark.parametrize("rows", [1, 2, 4, 8])
def test_one_client_never_has_all_rows_and_another_begins_at_once(rows):
    many = [waiting_job("greedy", rows) for _ in range(SLOTS)]
    running = begun(many, [])
    assert sum(one.rows for one in running) == SLOTS - KEPT
    stranger = waiting_job("stranger", 2)
    assert begun([*many[len(running) :], stranger], running) == [stranger]


def test_jobs_of_many_rows_leave_the_last_ones_whoever_asks():
    running = begun([waiting_job("a", 8), waiting_job("b", 8), waiting_job("c", 8)], [])
    assert [one.client for one in running] == ["a", "b"]
    small = waiting_job("d", KEPT)
    assert begun([waiting_job("c", 8), small], running) == [small]


def test_rows_that_are_kept_delay_no_large_job():
    """While one waits, small ones get the kept rows and no more, so it begins when its own go."""
    small = [waiting_job(f"s{number}", 2) for number in range(8)]
    large, first = waiting_job("large", 16), waiting_job("first", 2)
    running = [first, *begun([large, *small], [first])]
    assert large in running
    held = [waiting_job("held", 8)]
    assert sum(one.rows for one in begun([large, *small], held)) == KEPT
    assert begun([large, *small[2:]], small[:2]) == [large]


def test_of_equal_clients_who_came_first_comes_first_and_nobody_overtakes():
    jobs = [waiting_job("", 2), waiting_job("", 4), waiting_job("", 1)]
    assert begun(jobs, [], 5) == jobs[:1]  # the second has no room, and the third waits behind it
    apart = [waiting_job("a", 2), waiting_job("b", 3), waiting_job("c", 1)]
    assert begun(apart, [], 4) == apart[:1]
    mixed = [waiting_job(name) for name in "abcab"]
    assert begun(mixed, [], 4) == mixed[:4]


def test_the_client_with_the_fewest_rows_comes_first_within_a_priority():
    busy, idle, urgent = waiting_job("busy"), waiting_job("idle"), waiting_job("busy", priority=-1)
    assert begun([busy, idle, urgent], [waiting_job("busy")]) == [urgent, idle, busy]


def job(name: str, text: str, client: str, **knobs: object) -> SpeechJob:
    params = SamplingParams.model_validate(knobs)
    return SpeechJob(id=name, text=text, params=params, client=client)


async def test_a_stranger_speaks_while_one_client_has_all_the_rows_and_places_that_it_may():
    backend = FakeBackend(block={"wait": "ar"})
    async with fake_engine(backend, slots=10, max_queue=10) as engine:
        await engine.lifecycle.wait_ready()
        greedy = [engine.submit(job(str(n), "wait for me", "greedy", best_of=8)) for n in range(8)]
        while not backend.began.is_set():
            await asyncio.sleep(0.01)
        while len(engine._queue) < share(10) + engine._queue.free_rows:
            greedy.append(engine.submit(job(str(len(greedy)), "wait", "greedy")))
        with pytest.raises(EngineBusy, match="of yours"):
            engine.submit(job("one more", "wait", "greedy"))
        stranger = engine.submit(job("stranger", "Hello there.", "stranger"))
        chunks = [chunk async for chunk in stranger]
        assert chunks[-1].result is not None
        assert chunks[-1].result.job_id == "stranger"
        for stream in greedy:
            await stream.aclose()


async def test_no_job_may_take_the_rows_that_are_kept():
    async with fake_engine(slots=8) as engine:
        await engine.lifecycle.wait_ready()
        with pytest.raises(InvalidRequest, match="8 rows of the batch, and one may have 7 of 8"):
            await anext(engine.submit(job("a", "Hi.", "", best_of=8)))


@pytest.mark.parametrize(
    ("running", "waiting", "client", "left"),
    [
        ([], [], "new", True),
        (["greedy"], [("greedy", 8)], "new", True),  # a further one of who has one running
        (["greedy"], [("greedy", 8)], "greedy", False),
        (["greedy"], [("other", 2)], "new", True),
        (["greedy"], [("other", 4)], "new", False),  # a first one that came before
        (["greedy", "new"], [("greedy", 8)], "new", False),
    ],
)
async def test_rows_are_left_for_a_client_beside_those_that_go_before_it(
    running: list[str], waiting: list[tuple[str, int]], client: str, left: bool
) -> None:
    queue = JobQueue(20)
    queue.free_rows = 20
    for name in running:
        queue.admit(one := waiting_job(name))
        queue.enqueue(one)
        assert queue.pop(lambda waiting: waiting[0]) is one
    queue.free_rows = 4
    for name, rows in waiting:
        queue.admit(one := waiting_job(name, rows))
        queue.enqueue(one)
    assert queue.rows_left_for(client) is left

"""Which jobs are stepped, by how much speech each has ahead of its listener; who begins."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from app.engine.admission import Capacity
from app.engine.interface import Plan
from app.engine.job import AudioChunk, SpeechJob
from app.engine.serving.metrics import EngineMetrics
from app.engine.serving.outcomes import Outcomes
from app.engine.serving.running import MAX_UNREAD_S, JobQueue, RunningJob
from app.engine.serving.scheduler import AHEAD_S, LATE_S, MAX_WAITING_S, Scheduler
from app.engine.serving.sound_worker import SoundWorker
from samplers.knobs.params import SamplingParams
from tests.fakes import FakeBackend

pytestmark = pytest.mark.anyio


class Stepped(BaseException):
    """Ends a scheduler after its first step."""


class Recorder:
    """A batch whose jobs have drawn what they are told to; it notes whom the first step is of."""

    def __init__(self, drawn_s: Sequence[float]) -> None:
        self._drawn_s = drawn_s
        self.stepped: list[int] = []

    def begin(self, plan: Plan, on_chunk: object) -> SimpleNamespace:
        number = int(plan.job.id)
        return SimpleNamespace(number=number, ready_s=self._drawn_s[number], frames=0)

    def step(self, streams: Sequence[SimpleNamespace]) -> None:
        self.stepped = sorted(one.number for one in streams)
        raise Stepped


def given(
    *,
    made_s: float | None = None,
    priority: int = 0,
    unread_s: float = 0.0,
    played: bool = True,
    drawn_s: float = 0.0,
) -> tuple[float, RunningJob]:
    """Return a job that has drawn so much speech, and what was made of it."""
    job = RunningJob("a job", 60.0, lambda: None, played=played)
    job.plan = FakeBackend().plan(SpeechJob("a job", "Hi.", SamplingParams(), priority=priority))
    job.playback.audio_s = drawn_s if made_s is None else made_s
    if unread_s:
        job.playback.finish()  # so that what is sent is not held
        job.send(AudioChunk(np.zeros(round(unread_s), np.float32), 1))
    return drawn_s, job


def scheduled(
    *jobs: tuple[float, RunningJob],
    capacity: Capacity | None = None,
    fits: Callable[..., bool] = lambda *_: True,
) -> tuple[list[int], JobQueue]:
    """Return which of some jobs the first step is of, and the queue after it."""
    queue, capacity = JobQueue(len(jobs)), capacity or Capacity()
    queue.free_rows = 2 * len(jobs)
    sound = SoundWorker(
        Outcomes(EngineMetrics()), capacity, on_end=lambda _: None, stall_timeout_s=60.0
    )
    scheduler = Scheduler(queue, sound, capacity, EngineMetrics(), slots=2 * len(jobs))
    for number, (_, job) in enumerate(jobs):
        assert queue.admit(job)
        plan = job.plan
        queue.enqueue(job, plan and replace(plan, job=replace(plan.job, id=str(number))))
    batch = Recorder([drawn_s for drawn_s, _ in jobs])
    with pytest.raises(Stepped):
        scheduler.run(cast("Any", batch), 75.0, 0.01, fits)
    return batch.stepped, queue


@pytest.mark.parametrize(
    ("jobs", "stepped"),
    [
        pytest.param(
            [{"drawn_s": LATE_S}, {"drawn_s": 2 * AHEAD_S}], [0, 1], id="all while none is late"
        ),
        pytest.param(
            [{"drawn_s": 0.0}, {"drawn_s": AHEAD_S}, {"drawn_s": AHEAD_S - 0.1}],
            [0, 2],
            id="not one far ahead while another is late",
        ),
        pytest.param(
            [{"drawn_s": 2 * AHEAD_S, "played": False}, {"played": False}],
            [1],
            id="of those sent whole the new one before those that have seconds",
        ),
        pytest.param(
            [{"priority": 1}, {"priority": 0}], [1], id="not one of less priority beside a late one"
        ),
        pytest.param([{"priority": 1}, {"priority": 0, "drawn_s": LATE_S}], [0, 1], id="else both"),
        pytest.param(
            [{"drawn_s": 1.0, "unread_s": MAX_UNREAD_S + 1}, {"drawn_s": 2.0}],
            [1],
            id="not one that pauses",
        ),
        pytest.param(
            [{"drawn_s": MAX_WAITING_S + 0.1, "made_s": 0.0}, {"drawn_s": 2.0}],
            [1],
            id="not one far ahead of its sound",
        ),
    ],
)
async def test_a_step_is_of(jobs: list[dict[str, Any]], stepped: list[int]) -> None:
    found, _ = scheduled(*(given(**one) for one in jobs))
    assert found == stepped


async def test_a_job_that_would_make_others_stall_waits_but_no_replay_and_none_sent_whole() -> None:
    slow = Capacity()
    slow.note_sound(10.0, 1.0)
    replay = RunningJob("again", 60.0, lambda: None, replayed=cast("Any", "a result"))
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

"""Which jobs are stepped, by how much speech each has ahead of its listener."""

from dataclasses import dataclass
from time import monotonic
from types import SimpleNamespace
from typing import cast

import pytest

from app.engine.capacity import Capacity
from app.engine.interface import Plan, Replay
from app.engine.playback import Playback
from app.engine.serving.metrics import EngineMetrics
from app.engine.serving.queue import TicketQueue
from app.engine.serving.scheduler import AHEAD_S, LATE_S, MAX_WAITING_S, Scheduler
from app.engine.serving.sound_worker import SoundWorker
from app.engine.serving.ticket import Ticket


@dataclass(eq=False)
class Job:
    """The part of a ticket that the choice reads; a ticket itself needs an event loop."""

    playback: Playback
    priority: int
    paused_s: float


@pytest.fixture
def scheduler() -> Scheduler:
    return Scheduler(
        TicketQueue(4), cast("SoundWorker", None), Capacity(), EngineMetrics(), slots=8
    )


def add(
    scheduler: Scheduler,
    drawn_s: float,
    *,
    given_s: float | None = None,
    priority: int = 0,
    paused_s: float = 0.0,
    played: bool = True,
) -> Ticket:
    """Add a job that has drawn so much speech, whose playback has not begun."""
    playback = Playback(monotonic(), played=played)
    playback.audio_s = drawn_s if given_s is None else given_s
    ticket = cast("Ticket", Job(playback, priority, paused_s))
    scheduler._streams[ticket] = SimpleNamespace(ready_s=drawn_s)
    return ticket


def test_all_are_stepped_while_none_is_late(scheduler):
    jobs = [add(scheduler, LATE_S), add(scheduler, 2 * AHEAD_S)]
    assert scheduler._choose() == jobs


def test_a_job_far_ahead_waits_while_another_is_late(scheduler):
    late, _, near = add(scheduler, 0.0), add(scheduler, AHEAD_S), add(scheduler, AHEAD_S - 0.1)
    assert scheduler._choose() == [late, near]


def test_a_new_speech_sent_whole_is_drawn_before_those_that_have_seconds(scheduler):
    add(scheduler, 2 * AHEAD_S, played=False)
    new = add(scheduler, 0.0, played=False)
    assert scheduler._choose() == [new]


def test_a_job_of_less_priority_waits_while_another_is_late(scheduler):
    background, late = add(scheduler, 0.0, priority=1), add(scheduler, 0.0)
    assert scheduler._choose() == [late]
    scheduler._streams[late] = SimpleNamespace(ready_s=LATE_S)
    assert scheduler._choose() == [background, late]


def test_a_job_that_pauses_or_is_far_ahead_of_the_sound_worker_is_not_stepped(scheduler):
    add(scheduler, 1.0, paused_s=0.1)
    add(scheduler, MAX_WAITING_S + 0.1, given_s=0.0)
    assert scheduler._choose() == []


def test_a_job_that_would_make_others_stall_waits_but_not_a_replay(scheduler):
    plan, replay = (
        SimpleNamespace(work=work, priority=0, asker="", playback=Playback(0.0))
        for work in (_plan(), _replay())
    )
    scheduler._sound_worker = SimpleNamespace(has_room_for=lambda _: False)
    assert scheduler._next([plan]) is None
    assert scheduler._next([plan, replay]) is replay
    scheduler._sound_worker.has_room_for = lambda _: True
    assert scheduler._next([plan]) is plan


def test_a_speech_sent_whole_begins_whatever_is_played(scheduler):
    playback = Playback(0.0, played=False)
    whole = SimpleNamespace(work=_plan(), priority=0, asker="", playback=playback)
    scheduler._sound_worker = SimpleNamespace(has_room_for=lambda _: False)
    assert scheduler._next([whole]) is whole


def test_a_job_waits_while_memory_does_not_hold_it_beside_those_that_run(scheduler):
    plan, other = (
        SimpleNamespace(work=_plan(), priority=0, asker="", playback=Playback(0.0))
        for _ in range(2)
    )
    scheduler._sound_worker = SimpleNamespace(has_room_for=lambda _: True)
    scheduler.queue = SimpleNamespace(running=[other])
    asked: list[object] = []

    def fits(*given: object) -> bool:
        asked.append(given)
        return len(asked) > 1

    scheduler._fits = fits
    assert scheduler._next([plan]) is None
    assert scheduler._next([plan]) is plan
    assert asked[0] == (plan.work, [other.work])


def _plan() -> Plan:
    plan = object.__new__(Plan)
    object.__setattr__(plan, "rows", 2)
    return plan


def _replay() -> Replay:
    return object.__new__(Replay)

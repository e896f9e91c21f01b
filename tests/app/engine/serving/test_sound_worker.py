"""Whether there is room for one listener more, and when a job that nobody wants is over."""

from dataclasses import dataclass, field
from time import monotonic
from typing import Any, cast

import pytest

from app.engine.playback import Playback
from app.engine.serving.accounts import Accounts
from app.engine.serving.capacity import SHARE, Capacity
from app.engine.serving.metrics import EngineMetrics
from app.engine.serving.sound_worker import SoundWorker


@dataclass(eq=False)
class Listener:
    """What is asked of a ticket, which needs an event loop."""

    playback: Playback
    abandoned: str | None = None
    job_id: str = "a job"
    told: list[object] = field(default_factory=list)

    def close(self) -> bool:
        return not self.told

    def give(self, item: object) -> None:
        self.told.append(item)


@pytest.fixture
def voicer() -> SoundWorker:
    capacity = Capacity()
    capacity.note_voiced(SHARE / 3.1, 1.0)  # three listeners can be served
    return SoundWorker(cast("Any", None), capacity, on_end=lambda _: None, stall_timeout_s=1.0)


def join(voicer: SoundWorker, sound_s: float = 0.0, *, left_s: float = 5.0) -> None:
    """Let a listener come who has so much sound before them, and more to be made."""
    playback = Playback(monotonic())
    playback.expected_s = sound_s + left_s
    playback.give(sound_s)
    voicer.begin(cast("Any", Listener(playback)))


def test_as_many_may_come_as_can_be_served_in_real_time(voicer: SoundWorker) -> None:
    for _ in range(3):
        assert voicer.has_room_for(5.0)
        join(voicer)
    assert not voicer.has_room_for(5.0)
    assert 0 < voicer.wait_s(5.0, []) <= voicer.wait_s(5.0, [5.0])


def test_what_is_made_to_its_end_takes_no_room(voicer: SoundWorker) -> None:
    for _ in range(5):
        join(voicer, 5.0, left_s=-5.0)
    for _ in range(3):
        assert voicer.has_room_for(5.0)
        join(voicer)
    assert not voicer.has_room_for(5.0)


def test_a_job_that_nobody_wants_is_over_at_once_whatever_the_worker_does() -> None:
    over: list[object] = []
    voicer = SoundWorker(
        Accounts(EngineMetrics()), Capacity(), on_end=over.append, stall_timeout_s=1.0
    )
    left, stays = (cast("Any", Listener(Playback(monotonic()))) for _ in range(2))
    voicer.begin(left)
    voicer.begin(stays)
    voicer.wake()
    assert not over
    left.abandoned = "cancelled"
    voicer.wake()
    voicer.wake()
    assert over == [left]
    assert len(left.told) == 1
    assert not stays.told
    voicer.put(left, "a frame that is on its way")
    stays.abandoned = "cancelled"
    voicer.wake()
    voicer.close()
    voicer.run(cast("Any", None))  # comes to its end: nobody is left
    assert over == [left, stays]

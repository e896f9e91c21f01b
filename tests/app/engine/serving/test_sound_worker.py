"""Whether there is room for one listener more, and when a job that nobody wants is over."""

from dataclasses import dataclass, field
from time import monotonic
from typing import Any, cast

import pytest

from app.engine.playback import Playback
from app.engine.serving.capacity import SHARE, Capacity
from app.engine.serving.metrics import EngineMetrics
from app.engine.serving.outcomes import Outcomes
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

    def send(self, item: object) -> None:
        self.told.append(item)


@pytest.fixture
def sound_worker() -> SoundWorker:
    capacity = Capacity()
    capacity.note_sound(SHARE / 3.1, 1.0)  # three listeners can be served
    return SoundWorker(cast("Any", None), capacity, on_end=lambda _: None, stall_timeout_s=1.0)


def join(sound_worker: SoundWorker, sound_s: float = 0.0, *, left_s: float = 5.0) -> None:
    """Let a listener come who has so much sound before them, and more to be made."""
    playback = Playback(monotonic())
    playback.expected_s = sound_s + left_s
    playback.add(sound_s)
    sound_worker.begin(cast("Any", Listener(playback)))


def test_as_many_may_come_as_can_be_served_in_real_time(sound_worker: SoundWorker) -> None:
    for _ in range(3):
        assert sound_worker.has_room_for(5.0)
        join(sound_worker)
    assert not sound_worker.has_room_for(5.0)
    assert 0 < sound_worker.wait_s(5.0, []) <= sound_worker.wait_s(5.0, [5.0])


def test_what_is_made_to_its_end_takes_no_room(sound_worker: SoundWorker) -> None:
    for _ in range(5):
        join(sound_worker, 5.0, left_s=-5.0)
    for _ in range(3):
        assert sound_worker.has_room_for(5.0)
        join(sound_worker)
    assert not sound_worker.has_room_for(5.0)


def test_a_job_that_nobody_wants_is_over_at_once_whatever_the_worker_does() -> None:
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
    assert len(left.told) == 1
    assert not stays.told
    sound_worker.put(left, cast("Any", "a frame that is on its way"))
    stays.abandoned = "cancelled"
    sound_worker.wake()
    sound_worker.close()
    sound_worker.run(cast("Any", None))  # comes to its end: nobody is left
    assert over == [left, stays]

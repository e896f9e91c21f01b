"""Whether there is capacity for one more stream, and when an abandoned job ends."""

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
    """The part of a ticket that the worker uses; a ticket itself needs an event loop."""

    playback: Playback
    abandoned: str | None = None
    job_id: str = "a job"
    sent: list[object] = field(default_factory=list)

    def close(self) -> bool:
        return not self.sent

    def send(self, item: object) -> None:
        self.sent.append(item)


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
    sound_worker.begin(cast("Any", Listener(playback)))


def test_as_many_streams_fit_as_can_be_served_in_real_time(sound_worker: SoundWorker) -> None:
    for _ in range(3):
        assert sound_worker.has_room_for(5.0)
        join(sound_worker)
    assert not sound_worker.has_room_for(5.0)
    assert 0 < sound_worker.wait_s(5.0, []) <= sound_worker.wait_s(5.0, [5.0])


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

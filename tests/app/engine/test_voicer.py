"""Whether there is room for one listener more."""

from dataclasses import dataclass
from time import monotonic
from typing import Any, cast

import pytest

from app.engine.capacity import SHARE
from app.engine.playback import Playback
from app.engine.voicer import COMFORT_S, Voicer


@dataclass(eq=False)
class Listener:
    """What is asked of a ticket, which needs an event loop."""

    playback: Playback


@pytest.fixture
def voicer() -> Voicer:
    voicer = Voicer(cast("Any", None), on_end=lambda _: None, stall_timeout_s=1.0)
    voicer._capacity.note(SHARE / 3, 1.0)  # three listeners can be served
    return voicer


def join(voicer: Voicer, sound_s: float = 0.0) -> None:
    """Let a listener come who has so much sound before him."""
    playback = Playback(monotonic())
    playback.give(sound_s)
    voicer.begin(cast("Any", Listener(playback)))


def test_as_many_may_come_as_can_be_served_in_real_time(voicer: Voicer) -> None:
    for _ in range(3):
        assert voicer.has_room
        join(voicer)
    assert not voicer.has_room


def test_who_is_far_ahead_takes_no_room(voicer: Voicer) -> None:
    for _ in range(5):
        join(voicer, COMFORT_S + 5.0)
    join(voicer, COMFORT_S / 2)
    join(voicer)
    assert voicer.has_room
    join(voicer)
    assert not voicer.has_room

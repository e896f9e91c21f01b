"""Who is let in hears no gap: checked against a server that is simulated in small steps."""

from hypothesis import given
from hypothesis import strategies as st

from app.engine.serving.forecast import (
    LONGEST_S,
    STEP_S,
    Stream,
    fits,
    keeps_up,
    pauses_s,
    wait_s,
)
from models.text import Utterance

TICK_S = 0.01
seconds = st.floats(0.0, 8.0)
streams = st.lists(st.builds(Stream, seconds, st.floats(0.1, 8.0)), max_size=6)
speeds = st.floats(0.3, 6.0)


def gap_s(crowd: list[Stream], speed: float) -> float:
    """Serve whoever runs out first, a tick at a time; return the longest wait amid the sound."""
    leads, lefts = [one.lead_s for one in crowd], [one.left_s for one in crowd]
    longest_s = 0.0
    while any(left > 0 for left in lefts):
        budget_s = speed * TICK_S
        while budget_s > 0 and any(left > 0 for left in lefts):
            first = min((at for at in range(len(crowd)) if lefts[at] > 0), key=leads.__getitem__)
            given_s = min(TICK_S, lefts[first], budget_s)
            leads[first] += given_s
            lefts[first] -= given_s
            budget_s -= given_s
        for at in range(len(crowd)):
            leads[at] -= TICK_S
            if lefts[at] > 0:
                longest_s = max(longest_s, -leads[at])
    return longest_s


@given(streams, speeds)
def test_who_keeps_up_by_the_formula_hears_no_gap_in_the_simulation(
    crowd: list[Stream], speed: float
) -> None:
    slack_s = 3 * TICK_S * (1 + len(crowd))  # the simulation serves whole ticks
    if keeps_up(crowd, speed):
        assert gap_s(crowd, speed) <= slack_s


@given(streams, speeds)
def test_who_does_not_keep_up_by_the_formula_hears_a_gap(crowd: list[Stream], speed: float) -> None:
    if not keeps_up(crowd, speed * 1.1):
        assert gap_s(crowd, speed) > 0


def test_as_many_may_come_at_once_as_the_speed_has_whole_streams() -> None:
    crowd: list[Stream] = []
    while fits(crowd, 5.0, 3.2):
        crowd.append(Stream(0.0, 5.0))
    assert len(crowd) == 3


def test_who_is_far_ahead_leaves_room_for_others() -> None:
    assert not fits([Stream(0.0, 5.0)] * 3, 5.0, 3.2)
    assert fits([Stream(0.0, 5.0)] * 2 + [Stream(4.0, 1.0)], 5.0, 3.2)


def test_nobody_begins_while_a_listener_has_less_before_them_than_work_may_take() -> None:
    crowd = [Stream(0.1, 3.0, plays=True)]
    assert fits(crowd, 3.0, 5.0)
    assert not fits(crowd, 3.0, 5.0, blocking_s=0.2)
    assert fits([Stream(0.3, 3.0, plays=True)], 3.0, 5.0, blocking_s=0.2)
    assert fits([Stream(0.0, 3.0)], 3.0, 5.0, blocking_s=0.2)
    assert fits([Stream(0.1, 0.0, plays=True)], 3.0, 5.0, blocking_s=0.2)


def test_nobody_begins_while_a_listener_has_too_little_for_all_who_are_about_to() -> None:
    plays, begins = Stream(0.3, 3.0, plays=True), Stream(0.0, 3.0)
    assert fits([plays], 3.0, 9.0, blocking_s=0.2)
    assert not fits([plays, begins], 3.0, 9.0, blocking_s=0.2)
    assert fits([Stream(0.5, 3.0, plays=True), begins], 3.0, 9.0, blocking_s=0.2)


def test_nobody_begins_while_a_listener_waits_for_audio_that_takes_longer_than_usual() -> None:
    assert not fits([Stream(0.3, 3.0, plays=True, next_s=0.2)], 3.0, 9.0, blocking_s=0.2)
    assert fits([Stream(0.3, 3.0, plays=True, next_s=0.05)], 3.0, 9.0, blocking_s=0.2)
    assert fits([Stream(0.0, 3.0, next_s=0.2)], 3.0, 9.0, blocking_s=0.2)


def test_the_first_may_always_begin() -> None:
    assert fits([], 60.0, 0.1)
    assert wait_s([], [], 60.0, 0.1) == 0.0


def test_a_wait_ends_when_there_is_room() -> None:
    crowd = [Stream(0.0, 3.0)] * 3
    waited_s = wait_s(crowd, [], 3.0, 3.2)
    assert STEP_S <= waited_s <= 3.0
    assert wait_s(crowd, [3.0], 3.0, 3.2) >= waited_s
    assert wait_s([Stream(0.0, 1e6)] * 3, [], 3.0, 1.0) == LONGEST_S


def test_pauses_are_those_of_the_text_and_pause_s_between_the_others() -> None:
    own, usual = Utterance("One.", "w", 0.5), Utterance("Two.", "t")
    assert pauses_s([usual, own, usual], 0.25, more=False) == 0.25 + 0.5
    assert pauses_s([usual, own, usual], 0.25, more=True) == 0.25 + 0.5 + 0.25
    assert pauses_s([usual, own], 0.25, more=False) == 0.25 + 0.5
    assert pauses_s([], 0.25, more=False) == 0.0

"""Who is let in hears no gap, and nobody waits for a stranger's end."""

from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.engine.admission.cost_model import SHARE
from app.engine.admission.streams import Stream, fits, keeps_up, least_lead_s, may_begin, promised
from app.engine.serving.scheduler import YIELDING_SHARE

TICK_S = 0.01
weights = st.sampled_from([0.3, 1.0, 2.5])
seconds = st.floats(0.0, 8.0)
streams = st.lists(st.builds(Stream, seconds, st.floats(0.1, 8.0), weight=weights), max_size=6)
speeds = st.floats(0.3, 6.0)


def gap_s(crowd: list[Stream], speed: float) -> float:
    """Serve whoever runs out first, a tick at a time; return the longest wait amid the sound."""
    leads, lefts = [one.lead_s for one in crowd], [one.left_s for one in crowd]
    longest_s = 0.0
    while any(left > 0 for left in lefts):
        budget_s = speed * TICK_S
        while budget_s > 0 and any(left > 0 for left in lefts):
            first = min((at for at in range(len(crowd)) if lefts[at] > 0), key=leads.__getitem__)
            weight = crowd[first].weight
            given_s = min(TICK_S, lefts[first], budget_s / weight)
            leads[first] += given_s
            lefts[first] -= given_s
            budget_s -= given_s * weight
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
    while fits(crowd, Stream(0.0, 5.0), 3.2):
        crowd.append(Stream(0.0, 5.0))
    assert len(crowd) == 3


def test_who_is_far_ahead_leaves_room_for_others() -> None:
    assert not fits([Stream(0.0, 5.0)] * 3, Stream(0.0, 5.0), 3.2)
    assert fits([Stream(0.0, 5.0)] * 2 + [Stream(4.0, 1.0)], Stream(0.0, 5.0), 3.2)


def test_nobody_begins_while_a_listener_has_less_before_them_than_work_may_take() -> None:
    crowd = [Stream(0.1, 3.0, plays=True)]
    assert fits(crowd, Stream(0.0, 3.0), 5.0)
    assert not fits(crowd, Stream(0.0, 3.0), 5.0, blocking_s=0.2)
    assert fits([Stream(0.3, 3.0, plays=True)], Stream(0.0, 3.0), 5.0, blocking_s=0.2)
    assert fits([Stream(0.0, 3.0)], Stream(0.0, 3.0), 5.0, blocking_s=0.2)
    assert fits([Stream(0.1, 0.0, plays=True)], Stream(0.0, 3.0), 5.0, blocking_s=0.2)


def test_nobody_begins_while_a_listener_has_too_little_for_all_who_are_about_to() -> None:
    plays, begins = Stream(0.3, 3.0, plays=True), Stream(0.0, 3.0)
    assert fits([plays], Stream(0.0, 3.0), 9.0, blocking_s=0.2)
    assert not fits([plays, begins], Stream(0.0, 3.0), 9.0, blocking_s=0.2)
    assert fits([Stream(0.5, 3.0, plays=True), begins], Stream(0.0, 3.0), 9.0, blocking_s=0.2)


def test_nobody_begins_while_a_listener_waits_for_audio_that_takes_longer_than_usual() -> None:
    assert not fits(
        [Stream(0.3, 3.0, plays=True, next_s=0.2)], Stream(0.0, 3.0), 9.0, blocking_s=0.2
    )
    assert fits([Stream(0.3, 3.0, plays=True, next_s=0.05)], Stream(0.0, 3.0), 9.0, blocking_s=0.2)
    assert fits([Stream(0.0, 3.0, next_s=0.2)], Stream(0.0, 3.0), 9.0, blocking_s=0.2)


def test_the_first_may_always_begin() -> None:
    assert fits([], Stream(0.0, 60.0), 0.1)


@given(streams, speeds, st.builds(Stream, st.just(0.0), st.floats(0.5, 8.0), weight=weights))
def test_a_playback_that_begins_with_the_least_lead_has_no_gap_and_with_less_it_would(
    crowd: list[Stream], speed: float, one: Stream
) -> None:
    others = [stream for stream in crowd if keeps_up([stream], speed)]
    if not keeps_up(others, speed):
        return
    lead_s = least_lead_s(others, one, speed)
    held = Stream(lead_s, one.left_s - lead_s, weight=one.weight)
    assert keeps_up([*others, held], speed) or lead_s == one.left_s
    if lead_s > 0.1:
        less = Stream(lead_s - 0.1, one.left_s - lead_s + 0.1, weight=one.weight)
        assert not keeps_up([*others, less], speed)


@pytest.mark.parametrize("speed", [0.5, 0.8, 0.95, 1.0, 3.0])
def test_where_a_machine_is_too_slow_what_is_held_back_is_what_is_missing(speed: float) -> None:
    missing_s = 10.0 * max(0.0, 1.0 - speed)
    assert least_lead_s((), Stream(0.0, 10.0), speed) == pytest.approx(missing_s, abs=0.01)


def named(client: str, *, slow: bool = False, weight: float = 1.0, begun: bool = True) -> Stream:
    return Stream(0.0, 5.0, weight=weight, client=client, slow=slow, begun=begun)


@pytest.mark.parametrize(
    ("crowd", "kept"),
    [
        ("abc", "abc"),
        ("abcd", "abc"),  # the oldest, of clients with one each
        ("aaab", "aab"),  # who has most gives way to who has none
        ("aaaa", "aaa"),
        ("Aab", "ab"),  # a slow one gives way, and counts for nothing
        ("Aaab", "aab"),
        ("AB", ""),
    ],
)
def test_streams_are_promised_in_turn(crowd: str, kept: str) -> None:
    streams = [named(one.lower(), slow=one.isupper()) for one in crowd]
    found = promised(streams, 3.2)
    assert "".join(one for one, is_kept in zip(crowd, found, strict=True) if is_kept) == kept


def test_what_is_promised_to_a_stream_that_is_heard_no_older_one_takes() -> None:
    """As one that becomes the first of its client when the one before it ends."""
    older = Stream(0.0, 5.0, plays=True, client="a")
    newer = Stream(0.0, 5.0, plays=True, client="b", promised=True)
    assert promised([older, newer], 1.0) == [False, True]
    assert promised([older, newer], 2.0) == [True, True]


def test_a_newcomer_is_promised_nothing_while_a_listener_has_too_little() -> None:
    plays = Stream(0.1, 3.0, plays=True, client="a")
    assert promised([plays, named("b", begun=False)], 9.0, 0.2) == [True, False]
    assert promised([plays, named("b")], 9.0, 0.2) == [True, True]
    plays.lead_s = 0.5
    assert promised([plays, named("b", begun=False)], 9.0, 0.2) == [True, True]


@pytest.mark.parametrize(
    ("crowd", "newcomer", "may"),
    [
        ("", "a", True),
        ("aaa", "a", False),
        ("aaa", "b", True),
        ("bcd", "a", True),
        ("abc", "a", False),
        ("aBC", "a", True),  # slow streams of others are not counted
        ("A", "a", False),  # those of its own client are
        ("ABC", "d", True),
    ],
)
def test_only_a_client_that_has_a_stream_waits_and_for_its_own(
    crowd: str, newcomer: str, may: bool
) -> None:
    streams = [
        named(one.lower(), slow=one.isupper(), weight=4.0 if one.isupper() else 1.0)
        for one in crowd
    ]
    assert may_begin(streams, named(newcomer, begun=False), 3.2) is may


@dataclass
class Asked:
    """A stream of a simulated crowd."""

    at_s: float
    client: str
    length_s: float
    weight: float
    made_s: float = 0.0
    began_s: float | None = None  # when it was let in
    plays_s: float | None = None  # when its playback began
    gap_s: float = 0.0
    kept: bool = False  # promised now
    ranks: set[int] = field(default_factory=set)  # how many of its client were before it

    def stream(self, now_s: float, speed: float) -> Stream:
        plays = self.plays_s is not None
        lead_s = self.made_s
        if self.plays_s is not None:
            lead_s = max(0.0, self.made_s + self.gap_s - (now_s - self.plays_s))
        return Stream(
            lead_s, self.length_s - self.made_s, plays, weight=self.weight, client=self.client,
            slow=self.weight > speed / SHARE, begun=self.kept or self.made_s > 0,
            promised=self.kept,
        )  # fmt: skip


MOMENT_S = 0.04


class Machine:
    """Makes the audio of a crowd as the workers do, a tick at a time."""

    def __init__(self, speed: float) -> None:
        self.speed, self.now_s, self.owed_s = speed, 0.0, 0.0
        self.running: list[Asked] = []

    def tick(self, waiting: list[Asked]) -> None:
        for one in list(waiting):
            streams = [other.stream(self.now_s, self.speed) for other in self.running]
            if may_begin(streams, one.stream(self.now_s, self.speed), self.speed):
                one.began_s = self.now_s
                waiting.remove(one)
                self.running.append(one)
        streams = [one.stream(self.now_s, self.speed) for one in self.running]
        for one, kept in zip(self.running, promised(streams, self.speed), strict=True):
            one.kept = kept
        for at, one in enumerate(self.running):
            one.ranks.add(sum(other.client == one.client for other in self.running[:at]))
        self.make(self.speed / SHARE * MOMENT_S)
        self.now_s += MOMENT_S
        self.play()
        self.running = [one for one in self.running if one.made_s < one.length_s - 1e-9]

    def make(self, budget_s: float) -> None:
        """Work: a share is theirs who give way, the rest is theirs who are promised it."""
        kept = [one for one in self.running if one.kept]
        others = [one for one in self.running if not one.kept]
        lead_s = {id(one): one.stream(self.now_s, self.speed).lead_s for one in kept}
        given_s = YIELDING_SHARE * budget_s if others else 0.0
        left_s = self.serve(sorted(kept, key=lambda one: lead_s[id(one)]), budget_s - given_s)
        self.serve(sorted(others, key=self.due_s), left_s + given_s)

    def due_s(self, one: Asked) -> float:
        """Return whose turn it is of those that give way: as `Playback.due_s`."""
        return one.at_s + 4 * one.made_s * max(1.0, one.weight / self.speed)

    def serve(self, order: list[Asked], budget_s: float) -> float:
        while budget_s > 1e-12 and (
            left := [one for one in order if one.made_s < one.length_s - 1e-9]
        ):
            for one in left:
                made_s = min(MOMENT_S, one.length_s - one.made_s, budget_s / one.weight)
                one.made_s += made_s
                budget_s -= made_s * one.weight
        return budget_s

    def play(self) -> None:
        for one in self.running:
            if one.plays_s is None:
                others = [
                    other.stream(self.now_s, self.speed)
                    for other in self.running
                    if other is not one and other.kept
                ]
                whole = Stream(0.0, one.length_s, weight=one.weight)
                least_s = 0.0 if one.kept else least_lead_s(others, whole, self.speed)
                if one.made_s >= min(least_s, one.length_s) and one.made_s > 0:
                    one.plays_s = self.now_s
                    one.kept = True  # beside those that are: nobody is promised it before
            elif one.made_s < one.length_s:
                one.gap_s += max(0.0, self.now_s - one.plays_s - one.made_s - one.gap_s)


asked = st.builds(
    Asked,
    at_s=st.floats(0.0, 4.0),
    client=st.sampled_from("abcd"),
    length_s=st.floats(0.5, 3.0),
    weight=st.sampled_from([1.0, 1.0, 1.0, 2.0]),
)
hostile = st.builds(
    Asked,
    at_s=st.floats(0.0, 1.0),
    client=st.sampled_from("xy"),
    length_s=st.just(1000.0),
    weight=st.sampled_from([6.0, 20.0]),
)


@settings(max_examples=40, deadline=None)
@given(st.lists(asked, min_size=1, max_size=6), st.lists(hostile, max_size=3), st.floats(1.1, 4.0))
def test_in_a_crowd_nobody_waits_for_a_strangers_end_and_no_stream_hears_a_newcomer(
    crowd: list[Asked], slow: list[Asked], speed: float
) -> None:
    machine, waiting = Machine(speed), list[Asked]()
    coming = sorted([*crowd, *slow], key=lambda one: one.at_s)
    work_s = sum(one.length_s * one.weight for one in crowd)
    ends_s = 15.0 + (1 + len(slow)) * work_s / (YIELDING_SHARE * speed)
    while machine.now_s < ends_s and any(one.made_s < one.length_s - 1e-9 for one in crowd):
        while coming and coming[0].at_s <= machine.now_s:
            waiting.append(coming.pop(0))
        alone = {
            id(one)
            for one in waiting
            if all(other.client != one.client for other in machine.running)
            and next(other for other in waiting if other.client == one.client) is one
        }
        machine.tick(waiting)
        assert not {id(one) for one in waiting} & alone  # who has nothing in work begins at once
    for one in crowd:
        assert one.made_s >= one.length_s - 1e-9  # though the slow ones never end
        # Who has no other before it is not disturbed: a gap is at most one of the ticks.
        if one.ranks == {0} and one.weight <= speed:
            assert one.gap_s <= 6 * MOMENT_S * len(crowd)

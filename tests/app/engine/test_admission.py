"""What is promised follows what was measured; who is let in hears no gap; the quota."""

import math
from contextlib import ExitStack
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.engine.admission import (
    LONG_S,
    SHARE,
    USUAL_S,
    Capacity,
    Places,
    Stream,
    fits,
    keeps_up,
    longest_throttle_s,
    pauses_s,
    share,
)
from models.text import Utterance


def after(*voiced: tuple[float, float]) -> Capacity:
    capacity = Capacity()
    for work_s, sound_s in voiced:
        capacity.note_sound(work_s, sound_s)
    return capacity


def test_while_nothing_is_known_there_is_no_bound() -> None:
    assert after().speed == math.inf
    assert after().streams is None
    assert after((0.05, 0.0)).speed == math.inf


def test_a_share_of_the_measured_speed_is_promised() -> None:
    assert after((0.1, 1.0)).speed == pytest.approx(10 * SHARE)
    assert after((0.05, 0.0), (0.05, 1.0)).speed == pytest.approx(10 * SHARE, rel=0.02)
    assert after((0.1, 1.0)).streams == math.floor(10 * SHARE)


def test_a_machine_that_is_slower_than_one_stream_serves_none_without_a_gap() -> None:
    assert after((0.9, 1.0)).streams == 0


def test_the_costs_of_the_two_workers_add_up() -> None:
    capacity = after((0.1, 1.0))
    capacity.note_level_0(0.1, 1.0)
    assert capacity.speed == pytest.approx(5 * SHARE)


def test_a_machine_that_became_slower_is_noticed_within_seconds_of_sound() -> None:
    capacity = after(*[(0.1, 1.0)] * 100)
    for _ in range(10):
        capacity.note_sound(0.4, 1.0)
    assert capacity.speed == pytest.approx(2.5 * SHARE, rel=0.35)


def test_a_machine_that_became_quicker_is_trusted_after_a_while() -> None:
    capacity = after(*[(0.4, 1.0)] * 100)
    for _ in range(10):
        capacity.note_sound(0.1, 1.0)
    assert capacity.speed < 4 * SHARE
    for _ in range(round(4 * LONG_S)):
        capacity.note_sound(0.1, 1.0)
    assert capacity.speed == pytest.approx(10 * SHARE, rel=0.1)


def test_the_wait_for_a_first_audio_is_the_longest_start_of_late_and_the_ends_of_those_before() -> (
    None
):
    capacity = Capacity()
    assert capacity.first_audio_s(9) == 0.0
    for start_s in (0.1, 60.0):  # one that a debugger stopped does not count for as long
        capacity.note_start(start_s)
    assert capacity.first_audio_s(9) == pytest.approx(0.3)
    for _ in range(600):
        capacity.note_start(0.1)
    assert capacity.first_audio_s(9) == pytest.approx(0.1)
    capacity.note_sound(SHARE / 2.5, 1.0)
    assert capacity.streams == 2
    waits_s = [capacity.first_audio_s(jobs) for jobs in (1, 2, 3, 4)]
    assert waits_s == pytest.approx([0.1, 0.1, 0.1 + USUAL_S / 2, 0.1 + USUAL_S])


def stepping(step_s: float, steps: int = 300, capacity: Capacity | None = None) -> Capacity:
    capacity = capacity or Capacity()
    for _ in range(steps):
        capacity.note_level_0(step_s, 0.01)
    return capacity


def test_a_chunk_takes_its_steps_and_its_own_work() -> None:
    assert Capacity().chunk_s(30) == 0.0
    capacity = stepping(0.001)
    assert capacity.chunk_s(30) == pytest.approx(0.03 / SHARE)
    capacity.note_sound(0.05, 1.0)
    assert capacity.chunk_s(30) == pytest.approx(0.03 / SHARE + 0.05)
    assert capacity.chunk_s(60) == pytest.approx(0.06 / SHARE + 0.05)


def test_steps_that_became_slower_are_noticed_within_some_hundreds_and_quicker_ones_later() -> None:
    capacity = stepping(0.003, steps=300, capacity=stepping(0.001))
    assert capacity.chunk_s(1) == pytest.approx(0.003 / SHARE, rel=0.1)
    stepping(0.001, steps=300, capacity=capacity)
    assert capacity.chunk_s(1) > 0.0015 / SHARE
    stepping(0.001, steps=30_000, capacity=capacity)
    assert capacity.chunk_s(1) == pytest.approx(0.001 / SHARE, rel=0.1)


def test_under_a_quota_a_stream_waits_longer_for_its_next_audio_and_for_those_who_begin() -> None:
    free, held = Capacity(), Capacity(throttle_s=0.05)
    for capacity in (free, held):
        stepping(0.002, capacity=capacity)
        capacity.note_sound(0.1, 1.0)
        capacity.note_admission(0.02)
        capacity.note_start(0.04)
    assert held.chunk_s(30) == pytest.approx(free.chunk_s(30) + 0.05)
    assert free.delay_s(1) == pytest.approx(0.1 + 0.02)
    assert held.delay_s(1) == pytest.approx(0.1 + 0.02 + 0.04)


def test_chunks_that_are_made_at_once_delay_a_stream_once() -> None:
    capacity = after((0.1, 1.0))
    capacity.note_admission(0.02)
    assert capacity.delay_s(0) == 0.0
    assert capacity.delay_s(5) == pytest.approx(5 * 0.1 + 5 * 0.02)
    assert capacity.delay_s(5, at_once=4) == pytest.approx(2 * 0.1 + 5 * 0.02)


def test_the_length_of_speech_follows_what_was_spoken() -> None:
    capacity = Capacity()
    for _ in range(60):
        capacity.note_spoken(20, 4.0)
    assert capacity.speech_s(10) == pytest.approx(2.0, rel=0.01)


def test_the_longest_work_counts_until_it_has_faded() -> None:
    capacity = after((0.1, 1.0), (0.3, 1.0), (0.1, 1.0))
    capacity.note_admission(0.05)
    assert capacity.delay_s(1) == pytest.approx(0.3 + 0.05, rel=0.05)
    for _ in range(200):
        capacity.note_sound(0.1, 1.0)
    assert capacity.delay_s(1) == pytest.approx(0.1 + 0.05, rel=0.05)


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


def test_pauses_are_those_of_the_text_and_pause_s_between_the_others() -> None:
    own, usual = Utterance("One.", "w", 0.5), Utterance("Two.", "t")
    assert pauses_s([usual, own, usual], 0.25, more=False) == 0.25 + 0.5
    assert pauses_s([usual, own, usual], 0.25, more=True) == 0.25 + 0.5 + 0.25
    assert pauses_s([usual, own], 0.25, more=False) == 0.25 + 0.5
    assert pauses_s([], 0.25, more=False) == 0.0


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def version_1(folder: Path, quota_us: int, *, place: str = "/docker/1") -> Path:
    write(folder / "own", f"7:memory:/x\n2:cpuacct:{place}\n1:cpu:{place}\n0::/\n")
    write(folder / f"groups/cpu{place}/cpu.cfs_quota_us", f"{quota_us}\n")
    write(folder / f"groups/cpu{place}/cpu.cfs_period_us", "100000\n")
    return folder


def version_2(folder: Path, limit: str, *, at: str = "a/b") -> Path:
    write(folder / "own", "0::/a/b\n")
    write(folder / "groups" / at / "cpu.max", f"{limit}\n")
    return folder


def read(folder: Path, cpus: int = 2) -> float:
    return longest_throttle_s(folder / "groups", folder / "own", cpus)


@pytest.mark.parametrize(
    ("quota_us", "expected_s"), [(100_000, 0.05), (50_000, 0.075), (200_000, 0.0), (400_000, 0.0)]
)
def test_it_is_what_is_left_of_a_period_once_all_processors_used_up_the_quota(
    tmp_path: Path, quota_us: int, expected_s: float
) -> None:
    one, two = version_1(tmp_path / "1", quota_us), version_2(tmp_path / "2", f"{quota_us} 100000")
    assert read(one) == read(two) == pytest.approx(expected_s)


def test_quotas_of_the_groups_above_count(tmp_path: Path) -> None:
    folder = version_2(tmp_path, "100000 100000", at="a")
    version_2(folder, "max 100000")
    assert read(folder) == pytest.approx(0.05)


def test_a_container_reads_its_own_group_at_the_mount(tmp_path: Path) -> None:
    assert read(version_2(tmp_path / "2", "50000 100000", at=".")) == pytest.approx(0.075)
    folder = version_1(tmp_path / "1", 50_000, place="/")
    write(folder / "own", "1:cpu:/docker/1\n")
    assert read(folder) == pytest.approx(0.075)


def test_without_a_quota_the_process_is_never_stopped(tmp_path: Path) -> None:
    assert read(version_1(tmp_path / "1", -1)) == 0.0
    assert read(version_2(tmp_path / "2", "max 100000")) == 0.0
    write(tmp_path / "3/own", "5:devices:/\n0::/\n")
    assert read(tmp_path / "3") == 0.0


def test_where_groups_cannot_be_read_none_is_assumed(tmp_path: Path) -> None:
    assert read(tmp_path) == 0.0
    assert read(version_2(tmp_path, "a quota of another kind")) == 0.0


def test_this_machine_can_be_read() -> None:
    assert 0.0 <= longest_throttle_s() < 1.0


def test_a_share_of_places_is_held_and_given_back():
    places = Places(5)
    with ExitStack() as held:
        for _ in range(share(5)):
            assert places.free("greedy")
            held.enter_context(places.held("greedy"))
        assert not places.free("greedy")
        assert places.free("stranger")
        with places.held("stranger"):
            assert not places.free("another")
        assert places.taken == share(5)
    assert places.taken == 0
    assert places.free("greedy")

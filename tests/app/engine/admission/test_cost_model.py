"""What is promised follows what was measured, lately or of a speech alone; what it forgets."""

import math

import pytest

from app.engine.admission import cost_model as module
from app.engine.admission.cost_model import LONG_S, PEAK_S, RESTED_S, SHARE, USUAL_S, CostModel


@pytest.fixture(autouse=True)
def clock(monkeypatch):
    now = [1000.0]
    monkeypatch.setattr(module, "monotonic", lambda: now[0])
    return now


def after(*voiced: tuple[float, float]) -> CostModel:
    capacity = CostModel()
    for work_s, sound_s in voiced:
        capacity.note_audio(work_s, sound_s)
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
    capacity.note_ar(0.1, 1.0)
    assert capacity.speed == pytest.approx(5 * SHARE)


def test_a_machine_that_became_slower_is_noticed_within_seconds_of_sound() -> None:
    capacity = after(*[(0.1, 1.0)] * 100)
    for _ in range(10):
        capacity.note_audio(0.4, 1.0)
    assert capacity.speed == pytest.approx(2.5 * SHARE, rel=0.35)


def test_a_machine_that_became_quicker_is_trusted_after_a_while() -> None:
    capacity = after(*[(0.4, 1.0)] * 100)
    for _ in range(10):
        capacity.note_audio(0.1, 1.0)
    assert capacity.speed < 4 * SHARE
    for _ in range(round(4 * LONG_S)):
        capacity.note_audio(0.1, 1.0)
    assert capacity.speed == pytest.approx(10 * SHARE, rel=0.1)


def test_the_wait_for_a_first_audio_is_the_longest_start_of_late_and_the_ends_of_those_before() -> (
    None
):
    capacity = CostModel()
    assert capacity.first_audio_s(9) == 0.0
    for start_s in (0.1, 60.0):  # one that a debugger stopped does not count for as long
        capacity.note_start(start_s)
    assert capacity.first_audio_s(9) == pytest.approx(0.3)
    for _ in range(600):
        capacity.note_start(0.1)
    assert capacity.first_audio_s(9) == pytest.approx(0.1)
    capacity.note_audio(SHARE / 2.5, 1.0)
    assert capacity.streams == 2
    waits_s = [capacity.first_audio_s(jobs) for jobs in (1, 2, 3, 4)]
    assert waits_s == pytest.approx([0.1, 0.1, 0.1 + USUAL_S / 2, 0.1 + USUAL_S])


def stepping(step_s: float, steps: int = 300, capacity: CostModel | None = None) -> CostModel:
    capacity = capacity or CostModel()
    for _ in range(steps):
        capacity.note_ar(step_s, 0.01)
    return capacity


def test_a_chunk_takes_its_steps_and_its_own_work() -> None:
    assert CostModel().chunk_s(30) == 0.0
    capacity = stepping(0.001)
    assert capacity.chunk_s(30) == pytest.approx(0.03 / SHARE)
    capacity.note_audio(0.05, 1.0)
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
    free, held = CostModel(), CostModel(throttle_s=0.05)
    for capacity in (free, held):
        stepping(0.002, capacity=capacity)
        capacity.note_audio(0.1, 1.0)
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
    capacity = CostModel()
    for _ in range(60):
        capacity.note_spoken(20, 4.0)
    assert capacity.speech_s(10) == pytest.approx(2.0, rel=0.01)


@pytest.mark.parametrize("quickest_s", [0.0427, 0.0446, 0.0572])
def test_speech_of_a_voice_that_has_not_spoken_is_no_longer_than_it_will_be(quickest_s) -> None:
    capacity = CostModel()
    for _ in range(60):
        capacity.note_spoken(100, 100 * quickest_s + 1.0, (None, "another"))
    assert capacity.least_speech_s(100, (None, "heart")) < 100 * quickest_s
    assert capacity.least_speech_s(100, None) < 100 * quickest_s


def test_speech_of_a_voice_that_has_spoken_lasts_as_long_as_its_own() -> None:
    capacity = CostModel()
    for _ in range(60):
        capacity.note_spoken(100, 5.0, (None, "heart"))
        capacity.note_spoken(100, 9.0, ("someone", "heart"))
        capacity.note_spoken(0, 9.0, (None, "heart"))
    assert capacity.least_speech_s(100, (None, "heart")) == pytest.approx(5.0, rel=0.01)
    assert capacity.least_speech_s(100, ("someone", "heart")) == pytest.approx(9.0, rel=0.01)


def test_of_many_voices_the_pace_of_those_that_spoke_last_is_known() -> None:
    capacity = CostModel()
    for number in range(300):
        capacity.note_spoken(100, 9.0, (None, f"{number}"))
    unknown_s = capacity.least_speech_s(100, None)
    assert capacity.least_speech_s(100, (None, "0")) == unknown_s
    assert capacity.least_speech_s(100, (None, "299")) > unknown_s


def test_the_longest_work_counts_until_it_has_faded() -> None:
    capacity = after((0.1, 1.0), (0.3, 1.0), (0.1, 1.0))
    capacity.note_admission(0.05)
    assert capacity.delay_s(1) == pytest.approx(0.3 + 0.05, rel=0.05)
    for _ in range(200):
        capacity.note_audio(0.1, 1.0)
    assert capacity.delay_s(1) == pytest.approx(0.1 + 0.05, rel=0.05)


def busy(capacity: CostModel, clock: list[float]) -> None:
    """Let a crowd make every cost three times as high."""
    capacity.begin(0)
    capacity.begin(1)
    for _ in range(200):
        capacity.note_ar(0.9, 1.0)
        capacity.note_audio(0.6, 1.0)
        capacity.note_admission(0.3)
        clock[0] += 0.3
    capacity.end(1)
    capacity.end(0)


def fresh() -> CostModel:
    capacity = CostModel()
    for _ in range(20):
        capacity.note_ar(0.3, 1.0)
        capacity.note_audio(0.2, 1.0)
        capacity.note_admission(0.1)
        capacity.note_start(0.2)
    return capacity


def told(capacity: CostModel) -> list[float]:
    return [
        capacity.speed, capacity.delay_s(1), capacity.chunk_s(30), capacity.first_audio_s(4),
        capacity.streams or 0,
    ]  # fmt: skip


def test_a_service_that_was_busy_and_rests_says_what_a_fresh_one_says(clock) -> None:
    capacity = fresh()
    before = told(capacity)
    busy(capacity, clock)
    assert told(capacity) != before
    clock[0] += RESTED_S / 2
    assert told(capacity) != before
    clock[0] += RESTED_S / 2
    assert told(capacity) == before


def test_a_service_that_never_rests_goes_by_what_it_measures(clock) -> None:
    capacity = fresh()
    before = told(capacity)
    busy(capacity, clock)
    capacity.begin(0)
    clock[0] += 10 * RESTED_S
    assert told(capacity) != before


def test_what_a_speech_alone_costs_is_learned_and_outlives_a_rest(clock) -> None:
    capacity = fresh()
    capacity.begin(0)
    for _ in range(300):
        capacity.note_ar(0.9, 1.0)
    capacity.end(0)
    clock[0] += RESTED_S
    assert capacity.speed == pytest.approx(SHARE / 1.1, rel=0.01)


def test_a_peak_is_forgotten_with_time_as_well_as_with_jobs(clock) -> None:
    capacity = CostModel()
    capacity.note_start(5.0)
    clock[0] += 3 * PEAK_S
    capacity.note_start(0.1)
    assert capacity.first_audio_s(1) == pytest.approx(5.0 * 0.05, rel=0.1)

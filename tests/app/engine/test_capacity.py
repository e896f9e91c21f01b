"""The speed that is promised follows what sound costs, quickly down and slowly up."""

import math

import pytest

from app.engine.capacity import LONG_S, SHARE, Capacity


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


def test_a_start_that_is_told_is_longer_than_most() -> None:
    capacity = Capacity()
    for start_s in [0.1, 0.2] * 40:
        capacity.note_start(start_s)
    assert capacity.start_s(beside=False) == 0.2


def test_a_start_beside_others_is_told_apart_and_as_longer_before_one_is_known() -> None:
    capacity = after((0.1, 1.0))
    capacity.note_start(0.1)
    alone_s, blocking_s = capacity.start_s(beside=False), capacity.blocking_s
    guess_s = capacity.start_s(beside=True)
    # It waits for the work that has begun, and buffers as much, made at the measured speed.
    assert guess_s == pytest.approx(alone_s + blocking_s + blocking_s / (10 * SHARE))
    for _ in range(40):
        capacity.note_start(0.5, beside=True)
    assert capacity.start_s(beside=False) == alone_s
    # And another may begin meanwhile.
    assert capacity.start_s(beside=True) == pytest.approx(0.5 + blocking_s)


def test_before_any_measurement_a_start_takes_no_time() -> None:
    assert after().start_s(beside=True) == after().start_s(beside=False) == 0.0


def test_a_start_is_told_as_long_as_the_longest_of_late() -> None:
    capacity = Capacity()
    for start_s in [0.4, *[0.1] * 20]:
        capacity.note_start(start_s)
    assert 0.35 < capacity.start_s(beside=False) < 0.4
    for _ in range(600):
        capacity.note_start(0.1)
    assert capacity.start_s(beside=False) == pytest.approx(0.1)


def test_one_job_that_was_stopped_does_not_make_all_wait_as_long() -> None:
    capacity = Capacity()
    for start_s in (0.1, 60.0):
        capacity.note_start(start_s)
    assert capacity.start_s(beside=False) == pytest.approx(0.3)


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
    assert free.blocking_s == pytest.approx(0.1 + 0.02)
    assert held.blocking_s == pytest.approx(0.1 + 0.02 + 0.04)


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
    assert capacity.blocking_s == pytest.approx(0.3 + 0.05, rel=0.05)
    for _ in range(200):
        capacity.note_sound(0.1, 1.0)
    assert capacity.blocking_s == pytest.approx(0.1 + 0.05, rel=0.05)

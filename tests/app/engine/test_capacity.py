"""How many listeners there may be follows what their sound costs."""

import math

import pytest

from app.engine.capacity import FORGET_S, LEAST, SHARE, Capacity


def after(*notes: tuple[float, float]) -> Capacity:
    capacity = Capacity()
    for work_s, sound_s in notes:
        capacity.note(work_s, sound_s)
    return capacity


def test_while_nothing_is_known_there_is_no_end_of_them() -> None:
    assert after().listeners == math.inf
    assert after((0.05, 0.0)).listeners == math.inf


def test_a_share_of_those_who_could_be_served_in_real_time_may_come() -> None:
    assert after((0.1, 1.0)).listeners == math.floor(10 * SHARE)
    assert after((0.05, 0.0), (0.05, 1.0)).listeners == math.floor(10 * SHARE)


def test_where_real_time_is_hopeless_nobody_waits() -> None:
    assert after((SHARE / LEAST * 1.01, 1.0)).listeners == math.inf
    assert after((SHARE / LEAST * 0.99, 1.0)).listeners == LEAST


def test_an_old_cost_is_forgotten() -> None:
    capacity = after((10.0, 100.0))
    before = capacity.listeners
    for _ in range(round(5 * FORGET_S)):
        capacity.note(0.2, 1.0)
    assert before == math.floor(10 * SHARE)
    assert capacity.listeners == pytest.approx(math.floor(5 * SHARE), abs=1)

"""The simulation agrees with what is known of queues, and with itself."""

import math
from dataclasses import replace
from statistics import fmean

import pytest

from lab.benchmarks.cluster.simulate import Load, figures, plan, simulate


def load(**fields) -> Load:
    return Load(**({"replicas": 1, "slots": 4, "rate": 0.1, "step_s": 0.1, "frames": 30} | fields))


def test_alone_the_first_sound_comes_after_a_step_and_later_by_the_jitter() -> None:
    alone = load(rate=0.001)
    first_s, late_s = simulate(alone, 500), simulate(replace(alone, jitter_s=0.05), 500)
    assert max(first_s) < 0.21
    assert figures(first_s)["p50_ms"] == pytest.approx(100, abs=0.1)
    later_s = [one - other for one, other in zip(late_s, first_s, strict=True)]
    assert 0 <= min(later_s) < max(later_s) <= 0.05 + 1e-9
    assert late_s != simulate(replace(alone, jitter_s=0.05), 500, jitter_seed=2)


def erlang_c_wait_s(rate: float, service_s: float, servers: int) -> float:
    """Return the mean wait of an M/M/c queue."""
    offered = rate * service_s
    blocked = 1.0
    for number in range(1, servers + 1):
        blocked = offered * blocked / (number + offered * blocked)
    waits = blocked / (1 - offered / servers * (1 - blocked))
    return waits * service_s / (servers - offered)


@pytest.mark.parametrize("used", [0.5, 0.7, 0.85])
def test_the_wait_lies_between_none_and_that_of_random_service_times(used) -> None:
    """With fixed service times a queue waits some half of Erlang's formula for random ones."""
    rate = used * 4 / 3.0
    waits_s = [one - 0.1 for one in simulate(load(rate=rate), 30_000)]
    erlang_s = erlang_c_wait_s(rate, 3.0, 4)
    assert 0.4 * erlang_s < fmean(waits_s) < 0.75 * erlang_s + 0.1


def test_the_least_busy_of_all_is_better_than_of_two() -> None:
    eight = {"replicas": 8, "rate": 8.5}
    least = figures(simulate(load(**eight), 8_000))["p95_ms"]
    two = figures(simulate(load(**eight, route="two"), 8_000))["p95_ms"]
    assert least < two


@pytest.mark.slow
def test_the_plan_grows_with_the_cards() -> None:
    few, many = rows = plan((1, 4))
    assert many["speech_s_a_s"] >= 4 * few["speech_s_a_s"] * 0.95
    assert all(row["first_p95_ms"] <= 300 and math.isfinite(row["used"]) for row in rows)

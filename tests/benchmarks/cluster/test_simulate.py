"""The simulation agrees with what is known of queues, and with itself."""

import math
from dataclasses import replace
from statistics import fmean

import pytest

from benchmarks.cluster.simulate import Load, between, figures, plan, simulate


def load(**fields) -> Load:
    return Load(**({"replicas": 1, "slots": 4, "rate": 0.1, "step_s": 0.1, "frames": 30} | fields))


def test_alone_the_first_sound_comes_after_a_step() -> None:
    first_s = simulate(load(rate=0.001), 2000)
    assert max(first_s) < 0.21
    assert figures(first_s)["p50_ms"] == pytest.approx(100, abs=0.1)


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


def test_utilisation_is_that_of_the_load() -> None:
    assert load(rate=1.0).utilisation == pytest.approx(0.75)


def test_more_replicas_at_the_same_load_wait_less() -> None:
    p95 = [
        figures(simulate(load(replicas=number, rate=number * 1.0), 8_000))["p95_ms"]
        for number in (1, 2, 4, 8)
    ]
    assert p95 == sorted(p95, reverse=True)


def test_the_least_busy_of_all_is_better_than_of_two() -> None:
    eight = {"replicas": 8, "rate": 8.5}
    least = figures(simulate(load(**eight), 8_000))["p95_ms"]
    two = figures(simulate(load(**eight, route="two"), 8_000))["p95_ms"]
    assert least < two


def test_arrivals_do_not_depend_on_routes() -> None:
    assert simulate(load(route="two"), 500) == simulate(load(), 500)


def test_of_equal_replicas_the_one_that_ends_first_is_taken(monkeypatch) -> None:
    monkeypatch.setattr("benchmarks.cluster.simulate.pauses", lambda *_: [0.0, 0.1, 0.1])
    _, _, third_s = simulate(load(replicas=2, slots=1), 3)
    assert third_s == pytest.approx(3.0 - 0.2 + 0.1)


def test_a_seed_gives_the_same_figures() -> None:
    assert simulate(load(), 500, seed=3) == simulate(load(), 500, seed=3)
    assert simulate(load(), 500, seed=3) != simulate(load(), 500, seed=4)


def test_jitter_delays_arrivals_by_no_more_than_it_says() -> None:
    """Where nobody waits for others a first sound is later by the jitter alone."""
    alone = load(rate=0.001)
    sure, late = simulate(alone, 500), simulate(replace(alone, jitter_s=0.05), 500)
    later_s = [one - other for one, other in zip(late, sure, strict=True)]
    assert 0 <= min(later_s) < max(later_s) <= 0.05 + 1e-9
    assert late != simulate(replace(alone, jitter_s=0.05), 500, jitter_seed=2)


def test_a_median_at_which_requests_begin_to_wait_is_no_figure_of_the_load() -> None:
    """Two cards of one row, 0.6 in use: other arrivals of that rate have another median."""
    busy = load(replicas=2, slots=1, rate=2.4, step_s=0.025, frames=20)
    few, many = (between(simulate(busy, count, one) for one in range(40)) for count in (90, 900))
    low, high = few["p50_ms"]
    assert high > 2 * low
    assert many["p50_ms"][1] - many["p50_ms"][0] < high - low
    calm = between(simulate(replace(busy, rate=0.4), 90, one) for one in range(40))["p50_ms"]
    assert calm[1] < 1.15 * calm[0]


def test_the_plan_grows_with_the_cards() -> None:
    few, many = rows = plan((1, 4))
    assert many["speech_s_a_s"] >= 4 * few["speech_s_a_s"] * 0.95
    assert all(row["first_p95_ms"] <= 300 and math.isfinite(row["used"]) for row in rows)

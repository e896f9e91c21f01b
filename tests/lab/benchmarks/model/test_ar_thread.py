"""What is told of the AR thread: codes of its processor time, and whether two checkouts agree."""

import pytest

from lab.benchmarks.model.ar_thread import ROOT, STREAMS, Measured, by_turns, judged


@pytest.mark.slow
@pytest.mark.weights
def test_each_number_of_streams_has_codes_the_same_in_every_round() -> None:
    found = by_turns([ROOT], rounds=2, steps=60)
    assert [streams for _, streams in found] == [*STREAMS]
    for one, other in found.values():
        assert one.codes > 0
        assert (one.codes, one.sha256) == (other.codes, other.sha256)
    few, many = (rounds[0].codes for rounds in found.values())
    assert many > 2 * few


@pytest.mark.parametrize(
    ("thread_s", "sha256", "holds"),
    [(1.0, "a", [True, True]), (1.2, "a", [False, True]), (0.5, "b", [True, False])],
    ids=["as fast", "slower", "other codes"],
)
def test_rounds_hold_before_another_checkout_if_as_fast_and_of_the_same_codes(
    thread_s: float, sha256: str, holds: list[bool]
) -> None:
    own = [Measured(100, thread_s, sha256), Measured(100, thread_s, "a")]
    before = [Measured(100, 1.0, "a")] * 2
    assert [one.holds for one in judged(own, before, 1)] == holds

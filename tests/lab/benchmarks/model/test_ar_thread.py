"""What is told of the AR thread: codes of its processor time, and whether two checkouts agree."""

import pytest

from lab.benchmarks.model.ar_thread import (
    BUILTIN,
    ROOT,
    STREAMS,
    Measured,
    System,
    by_turns,
    judged,
)


@pytest.mark.slow
@pytest.mark.weights
def test_each_number_of_streams_has_codes_the_same_in_every_round() -> None:
    found = by_turns([System(ROOT, BUILTIN)], rounds=2, steps=60)
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


@pytest.mark.parametrize(
    ("streams", "thread_s", "holds"),
    [(1, 1.0, True), (1, 1.1, False), (8, 0.7, True), (8, 0.8, False)],
)
def test_one_row_holds_before_two_by_streams_whatever_the_codes(
    streams: int, thread_s: float, holds: bool
) -> None:
    own, before = [Measured(100, thread_s, "a")], [Measured(100, 1.0, "b")]
    assert [one.holds for one in judged(own, before, streams, same_model=False)] == [holds]

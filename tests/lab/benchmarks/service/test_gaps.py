"""A row a rate, with the gaps that a listener hears."""

import asyncio
from pathlib import Path

import pytest

from app.commands.bench.listeners import ReceivedSpeech
from app.settings import Settings
from lab.benchmarks.harness.instrumented import observed_app
from lab.benchmarks.harness.served import served_here
from lab.benchmarks.service import gaps

SECOND = 48_000


def received(*arrivals: tuple[float, float]) -> ReceivedSpeech:
    """A speech of seconds of sound that came at some times."""
    counts = tuple((at_s, round(length_s * SECOND)) for at_s, length_s in arrivals)
    return ReceivedSpeech(
        200, arrivals=counts, sound=b"\x00\x40" * (sum(n for _, n in counts) // 2)
    )


def test_speeches_with_a_gap_are_counted_and_the_longest_told() -> None:
    smooth = received((0.1, 0.5), (0.4, 0.5))
    late = received((0.1, 0.2), (0.5, 0.5))
    row = gaps.row(2, 40, 0, [smooth, late, smooth])
    assert (row["speeches"], row["failed"], row["with a gap"]) == (3, 0, 1)
    assert row["longest gaps of a speech ms"] == pytest.approx(200)
    assert row["first sound p50 ms"] == 100


@pytest.mark.slow
def test_a_row_for_each_rate_beside_a_stream(toy: Path) -> None:
    settings = Settings(model=str(toy), device="cpu", aliases="heart=toy")
    with served_here(observed_app(settings)) as url:
        rows = asyncio.run(gaps.measure(url, ["Two old men sat there."], 0, (40, 80), 1))
    assert [row["tokens a second"] for row in rows] == [40, 80]
    assert all(row["failed"] == 0 for row in rows)

"""Repeated sequences: the table of runs, DRY, n-grams and banned sequences."""

from pathlib import Path
from typing import Any

import torch
from hypothesis import given
from hypothesis import strategies as st

from samplers.knobs.params import SamplingParams
from samplers.ops.repeats import next_runs, runs_of
from samplers.processors.bans import SequenceBan
from tests.samplers.reference.harness import (
    assert_logits,
    count_runs,
    load,
    newest_first,
    run,
    stack,
)


def _run_of(history: list[int], lag: int) -> int:
    """How many of the newest codes equal the codes ``lag`` back, counted one by one."""
    count = 0
    while count + lag < len(history) and history[-1 - count] == history[-1 - count - lag]:
        count += 1
    return count


@given(st.lists(st.integers(0, 2), max_size=30))
def test_runs_are_those_counted_one_by_one(history: list[int]) -> None:
    assert runs_of(history) == [_run_of(history, lag + 1) for lag in range(len(history))]


@given(st.lists(st.integers(0, 2), min_size=1, max_size=25))
def test_runs_carried_from_step_to_step_are_those_counted_anew(history: list[int]) -> None:
    runs = torch.zeros(1, len(history), dtype=torch.int64)
    for length in range(1, len(history) + 1):
        recent = newest_first([history[:length]])
        runs[:, :length] = next_runs(runs[:, :length], recent)
        assert torch.equal(runs[:, :length], count_runs(recent))


def test_golden_dry_are_met_by_every_row_of_one_batch(golden: Path) -> None:
    cases = load(golden, "dry")
    params = [SamplingParams(**case["params"]) for case in cases]
    logits = stack([case["logits"] for case in cases])
    after = run(["dry"], params, logits, [case["history"] for case in cases])
    for row, (case, was) in enumerate(zip(cases, logits, strict=True)):
        width = len(case["logits"])
        penalty = torch.zeros(width)
        for code, value in case["expected"]["penalty"].items():
            penalty[int(code)] = value
        torch.testing.assert_close(after[row, :width], was[:width] - penalty, atol=1e-4, rtol=1e-5)
        if "logits" in case["expected"]:
            assert_logits(after[row : row + 1, :width], [case["expected"]["logits"]])


def _dry_by_hand(
    history: list[int], allowed: int, span: int, breakers: list[int]
) -> dict[int, int]:
    """The longest match before each code, from the definition."""
    seen = history[-span:] if span else history
    best: dict[int, int] = {}
    for i in range(len(seen) - 1):
        n = 0
        while i - n >= 0 and seen[i - n] == seen[-1 - n] and seen[-1 - n] not in breakers:
            n += 1
        if n and seen[i + 1] not in breakers:
            best[seen[i + 1]] = max(best.get(seen[i + 1], 0), n)
    return {code: n for code, n in best.items() if n >= allowed}


@given(
    st.lists(st.integers(0, 3), max_size=24), st.integers(1, 4), st.integers(0, 12),
    st.lists(st.integers(0, 3), max_size=2),
)  # fmt: skip
def test_dry_is_its_definition(
    history: list[int], allowed: int, span: int, breakers: list[int]
) -> None:
    params = SamplingParams(
        dry_multiplier=1.0, dry_base=2.0, dry_allowed_length=allowed, dry_range=span,
        dry_sequence_breakers=tuple(breakers),
    )  # fmt: skip
    beside = SamplingParams(dry_multiplier=0.5)
    after = run(["dry"], [params, beside], torch.zeros(2, 5), [history, [1, 2, 1, 2]])[0]
    expected = _dry_by_hand(history, allowed, span, breakers)
    for code in range(5):
        n = expected.get(code)
        assert after[code] == (0.0 if n is None else -(2.0 ** (n - allowed)))


def _banned(sequences: list[dict[str, Any]], history: list[int]) -> list[float]:
    params = [
        SamplingParams(ban_sequences=[*sequences, {"codes": [0], "strength": 0.0}]),
        SamplingParams(),
    ]
    after = run([SequenceBan], params, torch.zeros(2, 5), [history, history])
    assert not after[1].any()
    row: list[float] = after[0].tolist()
    return row


def test_a_banned_sequence_cannot_be_completed() -> None:
    ban = -float("inf")
    assert _banned([{"codes": [1, 2, 3]}], [0, 1, 2]) == [0, 0, 0, ban, 0]
    assert _banned([{"codes": [1, 2, 3]}], [1, 2, 0]) == [0] * 5
    assert _banned([{"codes": [1, 2, 3]}], [2]) == [0] * 5
    assert _banned([{"codes": [4]}], []) == [0, 0, 0, 0, ban]


def test_a_banned_sequence_may_only_be_discouraged_and_the_strongest_counts() -> None:
    sequences = [{"codes": [1, 2], "strength": 3.0}, {"codes": [2], "strength": 1.0}]
    assert _banned(sequences, [1]) == [0, 0, -3, 0, 0]
    assert _banned(sequences, [0]) == [0, 0, -1, 0, 0]
    assert _banned([{"codes": [1, 99]}, {"codes": [3]}], [1]) == [0, 0, 0, -float("inf"), 0]


def test_a_sequence_with_an_id_that_is_no_code_never_comes_and_stands_for_nothing_else() -> None:
    for outside in (-1, -2, 5, 2**63):
        assert _banned([{"codes": [outside, 3]}], []) == [0] * 5
        assert _banned([{"codes": [outside, 3]}], [1, 2]) == [0] * 5

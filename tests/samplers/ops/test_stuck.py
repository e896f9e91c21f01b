"""Detectors of stuck speech, and what is tried less after a rewind."""

from pathlib import Path

import pytest
import torch

from samplers.ops import filters
from samplers.ops.repeats import count_runs
from samplers.ops.stuck import Hit, discourage, find_loop, find_silence
from tests.samplers.reference.harness import Case, load, newest_first, stack


def _detect(case: Case) -> Hit:
    knobs, history = case["params"], case["history"]
    recent, lengths = newest_first([history]), torch.tensor([len(history)])
    if "max_silence" in knobs:
        silent = torch.zeros(2048, dtype=torch.bool)
        silent[knobs["silence_tokens"]] = True
        return find_silence(
            recent, lengths, silent, longest=knobs["max_silence"], keep=knobs["keep"]
        )
    return find_loop(
        count_runs(recent), lengths, max_period=knobs["max_period"],
        min_repeats=knobs["min_repeats"], min_tokens=knobs["min_tokens"],
    )  # fmt: skip


def test_golden_loops(golden: Path) -> None:
    for case in load(golden, "loop_detect"):
        if "max_period" not in case["params"]:
            continue
        hit, expected = _detect(case), case["expected"]["hit"]
        nothing = {"period": 0, "run_length": 0, "rewind_to": len(case["history"])}
        wanted = expected or nothing
        assert hit.found.item() == bool(expected), case["id"]
        for field in nothing:
            assert getattr(hit, field).item() == wanted[field], (case["id"], field)


def test_golden_silences(golden: Path) -> None:
    for case in load(golden, "loop_detect"):
        if "max_silence" not in case["params"]:
            continue
        hit, expected = _detect(case), case["expected"]
        assert hit.found.item() == expected["hit"], case["id"]
        assert hit.run_length.item() == expected["run_length"], case["id"]
        assert hit.rewind_to.item() == (expected["rewind_to"] or len(case["history"]))


def test_rows_of_unequal_length_are_searched_together() -> None:
    histories = [[1, 2] * 10, [5], [], [7] * 9]
    lengths = torch.tensor([len(history) for history in histories])
    hit = find_loop(
        count_runs(newest_first(histories)), lengths, max_period=4, min_repeats=3, min_tokens=6
    )
    assert hit.period.tolist() == [2, 0, 0, 1]
    assert hit.rewind_to.tolist() == [2, 1, 0, 1]


def test_an_empty_history_is_not_stuck() -> None:
    runs = count_runs(newest_first([[]]))
    hit = find_loop(runs, torch.tensor([0]), max_period=4, min_repeats=2, min_tokens=2)
    assert not hit.found.any()


def test_golden_antislop_adjustment_as_odds(golden: Path) -> None:
    for case in load(golden, "antislop_adjust"):
        knobs, logits = case["params"], stack([case["logits"]])
        codes = torch.tensor([[int(code) for code in knobs["adjustments"]]])
        factors = torch.tensor([list(knobs["adjustments"].values())])
        strength = torch.tensor([[knobs["adjustment_strength"]]])
        found = discourage(logits, codes, factors, strength)
        wanted = stack([case["expected"]["adjusted_unnormalised"]], 0.0)
        probs = wanted / wanted.sum(-1, keepdim=True)
        torch.testing.assert_close(found.softmax(-1), probs, atol=1e-5, rtol=0)
        assert filters.descending(found)[0, 0] == found[0, case["expected"]["argmax_after"]]


@pytest.mark.parametrize(("strength", "factor"), [(0.0, 0.01), (100.0, 1.0)])
def test_strength_nothing_and_factor_one_do_nothing(strength: float, factor: float) -> None:
    logits = torch.randn(1, 6)
    found = discourage(
        logits, torch.tensor([[3, -1]]), torch.tensor([[factor, 0.5]]), torch.tensor([[strength]])
    )
    assert torch.equal(found, logits)


def test_full_strength_forbids() -> None:
    found = discourage(
        torch.zeros(1, 3), torch.tensor([[1]]), torch.tensor([[0.9]]), torch.tensor([[100.0]])
    )
    assert found[0].tolist() == [0, -float("inf"), 0]

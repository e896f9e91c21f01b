"""Detectors of stuck speech, and how codes that led into it are lowered."""

from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from samplers.ops import filters
from samplers.ops.stuck import (
    Hit,
    discourage,
    find_loop,
    find_silence,
    looped_frames,
    overlong_frames,
)
from tests.samplers.reference.harness import Case, count_runs, load, newest_first, stack

CODES = st.lists(st.integers(0, 2), max_size=30)
HUGE = 10**30


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


@given(CODES, st.integers(1, 6), st.integers(2, 4), st.integers(2, 12))
def test_looped_frames_are_all_copies_of_a_long_enough_loop_but_the_first(
    codes: list[int], max_period: int, min_repeats: int, min_frames: int
) -> None:
    expected = set[int]()
    for period in range(1, max_period + 1):
        for start in range(len(codes)):
            for end in range(start + max(min_repeats * period, min_frames), len(codes) + 1):
                if all(codes[at] == codes[at - period] for at in range(start + period, end)):
                    expected |= set(range(start + period, end))
    found = looped_frames(
        torch.tensor(codes, dtype=torch.int64),
        max_period=max_period, min_repeats=min_repeats, min_frames=min_frames,
    )  # fmt: skip
    assert set(found.nonzero()[:, 0].tolist()) == expected


@given(st.lists(st.booleans(), max_size=20), st.integers(0, 4))
def test_overlong_frames_are_those_of_a_silence_behind_the_length_allowed(
    flags: list[bool], longest: int
) -> None:
    found = overlong_frames(torch.tensor(flags, dtype=torch.bool), longest=longest)
    for at, flag in enumerate(found.tolist()):
        run = flags[max(0, at - longest) : at + 1]
        assert flag == (longest > 0 and len(run) == longest + 1 and all(run))


@given(CODES)
def test_the_newest_frame_is_in_a_loop_exactly_where_the_whole_utterance_says_so(
    codes: list[int],
) -> None:
    knobs = {"max_period": 4, "min_repeats": 2}
    whole = looped_frames(torch.tensor(codes, dtype=torch.int64), **knobs, min_frames=5)
    ends = [
        find_loop(
            count_runs(newest_first([codes[: end + 1]])), torch.tensor([end + 1]), **knobs,
            min_tokens=5,
        ).found.item()
        for end in range(len(codes))
    ]  # fmt: skip
    assert [at for at, found in enumerate(ends) if found] == [
        at
        for at in range(len(codes))
        if looped_frames(torch.tensor(codes[: at + 1]), **knobs, min_frames=5)[-1]
    ]
    assert whole.any() == any(ends)


def test_limits_beyond_any_tensor_find_nothing() -> None:
    codes = torch.zeros(20, dtype=torch.int64)
    for knobs in ({"min_repeats": HUGE, "min_frames": 2}, {"min_repeats": 2, "min_frames": HUGE}):
        assert not looped_frames(codes, max_period=HUGE, **knobs).any()
    recent, lengths = codes[None], torch.tensor([20])
    runs = count_runs(recent)
    assert not find_loop(
        runs, lengths, max_period=HUGE, min_repeats=HUGE, min_tokens=HUGE
    ).found.any()
    silent = torch.ones(1, dtype=torch.bool)
    assert not find_silence(recent, lengths, silent, longest=HUGE, keep=1).found.any()
    assert not overlong_frames(codes == 0, longest=HUGE).any()


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

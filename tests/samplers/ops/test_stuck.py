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
from tests.samplers.reference.harness import load, stack

CODES = st.lists(st.integers(0, 2), max_size=30)
HUGE = 10**30


def test_loops_are_found_where_the_golden_data_has_them(golden: Path) -> None:
    for case in load(golden, "loop_detect"):
        if "max_period" not in (knobs := case["params"]):
            continue
        hit, expected = find_loop(
            case["history"], max_period=knobs["max_period"],
            min_repeats=knobs["min_repeats"], min_frames=knobs["min_tokens"],
        ), case["expected"]["hit"]  # fmt: skip
        wanted = expected and {field: expected[field] for field in Hit._fields}
        assert (hit and hit._asdict()) == wanted, case["id"]


def test_silences_are_found_where_the_golden_data_has_them(golden: Path) -> None:
    for case in load(golden, "loop_detect"):
        if "max_silence" not in (knobs := case["params"]):
            continue
        hit, expected = find_silence(
            case["history"], knobs["silence_tokens"],
            longest=knobs["max_silence"], keep=knobs["keep"],
        ), case["expected"]  # fmt: skip
        wanted = Hit(1, expected["run_length"], expected["rewind_to"]) if expected["hit"] else None
        assert hit == wanted, case["id"]


@given(CODES, st.integers(1, 12), st.integers(2, 5), st.integers(2, 12))
def test_the_loop_found_is_the_smallest_period_whose_copies_are_many_and_long_enough(
    codes: list[int], max_period: int, min_repeats: int, min_frames: int
) -> None:
    expected = None
    for period in range(max_period, 0, -1):
        equal = [a == b for a, b in zip(codes[period:], codes, strict=False)][::-1]
        repeated = (*equal, False).index(False)
        if repeated and repeated + period >= max(min_repeats * period, min_frames):
            expected = Hit(period, repeated + period, len(codes) - repeated)
    knobs = {"max_period": max_period, "min_repeats": min_repeats, "min_frames": min_frames}
    assert find_loop(codes, **knobs) == expected


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
    knobs = {"max_period": 4, "min_repeats": 2, "min_frames": 5}
    for end in range(1, len(codes) + 1):
        looped = looped_frames(torch.tensor(codes[:end]), **knobs)
        assert (find_loop(codes[:end], **knobs) is not None) == looped[-1].item()


def test_what_is_allowed_and_limits_beyond_any_tensor_find_nothing() -> None:
    codes = torch.zeros(20, dtype=torch.int64)
    for knobs in ({"min_repeats": HUGE, "min_frames": 2}, {"min_repeats": 2, "min_frames": HUGE}):
        assert not looped_frames(codes, max_period=HUGE, **knobs).any()
        assert find_loop(codes.tolist(), max_period=HUGE, **knobs) is None
    assert find_silence(codes.tolist(), {0}, longest=HUGE, keep=1) is None
    assert find_silence(codes.tolist(), {0}, longest=20, keep=1) is None
    assert not overlong_frames(codes == 0, longest=HUGE).any()


def test_golden_antislop_adjustment_is_met_as_odds(golden: Path) -> None:
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

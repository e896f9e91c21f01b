"""Penalties and bans against golden vectors, and their direction for either sign of a logit."""

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from samplers.knobs.params import SamplingParams
from samplers.processors.bans import LogitBias, MinFrames
from tests.samplers.reference.harness import assert_logits, load, run, stack


@pytest.mark.parametrize(("length", "stop"), [(0, -3.0), (9, -6.0)])
def test_a_decay_factor_that_float32_cannot_hold_still_gives_a_number(
    length: int, stop: float
) -> None:
    params = SamplingParams(exponential_decay_factor=5e-324)
    moved = run(
        ["length_penalty"], [params], torch.tensor([[-3.0]]), lengths=[length], stop_token=0
    )
    assert moved.tolist() == [[stop]]


def test_golden_bans_are_met_by_every_row_of_one_batch(golden: Path) -> None:
    cases = load(golden, "ban_tokens")
    params = [SamplingParams(ban_tokens=case["params"]["ban_tokens"]) for case in cases]
    logits = stack([case["logits"] for case in cases])
    assert_logits(run([LogitBias], params, logits), [case["expected"]["logits"] for case in cases])


def test_golden_penalties_do_nothing_without_a_history_or_to_a_zero_logit(golden: Path) -> None:
    for tag in ("penalties_empty_history", "rep_pen_zero_logit"):
        (case,) = (case for case in load(golden, "edge_policy") if tag in case["tags"])
        params = SamplingParams(
            repetition_penalty=case["params"]["repetition_penalty"],
            repetition_penalty_mode="signed",
        )
        logits = stack([case["logits"]])
        penalised = run(["repetition_penalty"], [params], logits, [case["history"]])
        changed = [] if tag == "penalties_empty_history" else case["history"]
        untouched = [i for i in range(logits.shape[1]) if i not in changed]
        assert torch.equal(penalised[:, untouched], logits[:, untouched])
        assert penalised[0, 0] == logits[0, 0]


@given(
    st.floats(0.5, 2), st.floats(-2, 2), st.lists(st.integers(0, 4), min_size=1, max_size=100),
)  # fmt: skip
def test_an_additive_penalty_takes_the_nats_of_its_factor_times_a_power_of_each_distance(
    factor: float, decay: float, history: list[int]
) -> None:
    params = SamplingParams(repetition_penalty=factor, repetition_penalty_decay=decay)
    taken = -run(["repetition_penalty"], [params], torch.zeros(1, 6), [history])[0]
    recent = history[::-1][:75]
    for code in range(6):
        distances = [d for d, one in enumerate(recent, 1) if one == code]
        each = [math.log(factor) * d**decay for d in distances]
        nats = sum(max(-20.0, min(20.0, one)) for one in each)
        assert taken[code] == pytest.approx(max(-20.0, min(20.0, nats)), rel=1e-4, abs=1e-5)


@given(
    st.floats(-20, 20), st.floats(1.01, 3), st.sampled_from(["signed", "additive"]),
    st.floats(-2, 2), st.lists(st.integers(0, 4), min_size=1, max_size=100),
)  # fmt: skip
def test_a_penalty_lowers_what_was_drawn_whatever_its_sign(
    logit: float, factor: float, mode: Any, decay: float, history: list[int]
) -> None:
    params = SamplingParams(
        repetition_penalty=factor, repetition_penalty_mode=mode, repetition_penalty_decay=decay
    )
    logits = torch.full((1, 6), logit)
    penalised = run(["repetition_penalty"], [params], logits, [history])[0]
    for code in range(6):
        if code not in history[-75:]:
            assert penalised[code] == logits[0, code]
        elif logit:
            assert penalised[code] <= logits[0, code]


@pytest.mark.parametrize("stop_logit", [-3.0, 3.0])
@pytest.mark.parametrize("mode", ["signed", "additive"])
def test_a_positive_length_penalty_makes_the_stop_less_likely_for_either_sign(
    stop_logit: float, mode: Any
) -> None:
    logits = torch.tensor([[0.0, stop_logit]] * 3)
    powers = (-1.0, 0.0, 1.0)
    params = [SamplingParams(length_penalty=p, length_penalty_mode=mode) for p in powers]
    after = run(["length_penalty"], params, logits, lengths=[9] * 3, stop_token=1)[:, 1]
    assert after[0] > after[1] == stop_logit
    assert after[2] < stop_logit


def test_the_stop_waits_for_the_least_number_of_frames() -> None:
    params = [SamplingParams(min_frames=10), SamplingParams()]
    for length, held in ((9, True), (10, False)):
        after = run([MinFrames], params, torch.zeros(2, 3), lengths=[length, length], stop_token=2)
        assert (after[0, 2] == -torch.inf) == held
        assert torch.equal(after[1], torch.zeros(3))

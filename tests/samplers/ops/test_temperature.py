"""Temperatures against golden vectors and at their limits."""

from pathlib import Path

import numpy as np
import pytest
import torch

from samplers.knobs.params import SamplingParams
from samplers.ops.temperature import dynamic_entropy, dynamic_sigmoid
from tests.samplers.reference.harness import assert_probs, kept, load, run, stack


def test_golden_greedy_beats_a_dynamic_temperature(golden: Path) -> None:
    (case,) = (
        c for c in load(golden, "edge_policy") if "temperature_zero_with_dynatemp" in c["tags"]
    )
    params = [SamplingParams(**case["params"]), SamplingParams(min_temperature=0.5)]
    after = run(["temperature"], params, stack([case["logits"]] * 2))
    assert kept(after)[0] == [case["expected"]["token"]]
    assert len(kept(after)[1]) > 1


@pytest.mark.parametrize("tag", ["temperature_tiny", "temperature_huge"])
def test_extreme_temperatures_give_the_scores_of_the_golden_data(golden: Path, tag: str) -> None:
    (case,) = (case for case in load(golden, "edge_policy") if tag in case["tags"])
    params = SamplingParams(temperature=case["params"]["temperature"])
    logits = run(["temperature"], [params], stack([case["logits"]]))
    assert_probs(logits, [case["expected"]["probs"]])


def test_a_temperature_of_one_changes_no_bit_beside_rows_that_have_another() -> None:
    logits = torch.randn(2, 33)
    params = [SamplingParams(), SamplingParams(temperature=0.7)]
    assert torch.equal(run(["temperature"], params, logits)[0], logits[0])


def test_a_row_without_a_possible_code_has_a_temperature() -> None:
    logits = torch.full((1, 5), -torch.inf)
    low, high, slope, center = (torch.full((1, 1), value) for value in (0.2, 1.5, 10.0, 0.5))
    assert 1.4 < float(dynamic_sigmoid(logits, low, high, slope, center)) < 1.5
    assert float(dynamic_entropy(logits, low, high, slope)) == 1.0


@pytest.mark.parametrize(
    ("linear", "conf", "quad"), [(0.5, 0.4, 0.0), (0.72, -0.07, 0.1413), (1.0, 0.0, 2.0)]
)
def test_unified_draws_with_the_odds_of_zonos(linear: float, conf: float, quad: float) -> None:
    logits = 3 * torch.randn(2, 40)
    log_probs = (logits[0] - logits[0].logsumexp(0)).double().numpy()
    surprise = -(np.exp(log_probs) * log_probs).sum()
    raw = log_probs * (linear + surprise * conf) - log_probs**2 * quad  # `apply_unified`
    params = SamplingParams(
        temperature=1 / linear, unified_conf=conf / linear, unified_quad=quad / linear
    )
    after = run(["temperature"], [params, SamplingParams()], logits)
    assert_probs(after[:1], [np.exp(raw - np.logaddexp.reduce(raw)).tolist()])
    assert torch.equal(after[1], logits[1])


def test_unified_keeps_codes_excluded_and_a_row_without_any() -> None:
    logits = torch.tensor([[1.0, -torch.inf, 0.0], [-torch.inf] * 3, [1.0, -torch.inf, 0.0]])
    on, off = SamplingParams(unified_conf=1.0, unified_quad=1.0), SamplingParams()
    after = run(["temperature"], [on, on, off], logits)
    assert torch.equal(after == -torch.inf, logits == -torch.inf)

"""Temperatures against golden vectors and at their limits."""

from pathlib import Path

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
def test_golden_extreme_temperatures(golden: Path, tag: str) -> None:
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

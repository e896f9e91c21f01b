"""Temperatures against golden vectors and at their limits."""

from pathlib import Path

import pytest
import torch

from samplers.params import SamplingParams
from tests.samplers.harness import assert_probs, load, run, stack


def test_golden_temperatures_in_one_batch(golden: Path) -> None:
    cases = load(golden, "temperature")
    params = [SamplingParams(temperature=case["params"]["temperature"]) for case in cases]
    logits = run(["temperature"], params, stack([case["logits"] for case in cases]))
    assert_probs(logits, [case["expected"]["probs"] for case in cases])
    for row, case in zip(logits, cases, strict=True):
        if case["params"]["temperature"] > 0:
            expected = stack([case["expected"]["logits"]])[0]
            torch.testing.assert_close(row[: len(expected)], expected, atol=1e-4, rtol=1e-5)
        else:
            assert row.argmax() == case["expected"]["token"]


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

"""The schedule of masked decoding against golden vectors."""

from pathlib import Path

import pytest
import torch

from samplers.masked import least_certain, progress_of, schedule
from tests.samplers.reference.harness import load


def test_schedules_and_selections_are_those_of_the_golden_data(golden: Path) -> None:
    for case in load(golden, "nar_mask"):
        knobs, expected = case["params"], case["expected"]
        counts = schedule(knobs["length"], knobs["steps"])
        for place, (found, wanted) in enumerate(zip(counts, expected["mask_counts"], strict=True)):
            # At these steps the cosine falls on a whole number, and rounding decides.
            slack = place in expected["ambiguous_steps"]
            assert abs(found - wanted) <= slack, (case["id"], place)
        assert progress_of(knobs["steps"]) == pytest.approx(expected["timesteps"])
        chosen = case["selection"]
        masked = least_certain(torch.tensor(chosen["scores"]), chosen["count"])
        assert masked.nonzero()[:, 0].tolist() == sorted(chosen["masked"])


def test_a_single_pass_masks_everything() -> None:
    assert schedule(12, 1) == [12]

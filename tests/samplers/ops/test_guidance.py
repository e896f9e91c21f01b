"""Classifier-free guidance against golden vectors."""

from pathlib import Path

import torch

from samplers.ops.guidance import guide
from tests.samplers.frames import guide_frames
from tests.samplers.reference.harness import assert_logits, load, stack


def test_golden_guidance_is_met_aligned_at_the_end(golden: Path) -> None:
    for case in load(golden, "cfg"):
        knobs = case["params"]
        last = knobs["last_n"]
        positive, negative = (stack(case[name])[None, -last:] for name in ("positive", "negative"))
        strength, rescale = (
            torch.tensor([float(knobs[name])]) for name in ("cfg_strength", "cfg_rescale")
        )
        assert_logits(
            guide(positive, negative, strength, rescale)[0], case["expected"]["last_n_logits"]
        )


def test_rows_have_their_own_strength_and_strength_one_is_the_conditional_row() -> None:
    positive, negative = torch.randn(2, 1, 9), torch.randn(2, 1, 9)
    guided = guide(positive, negative, torch.tensor([1.0, 3.0]), torch.tensor([0.7, 0.0]))
    torch.testing.assert_close(guided[0], positive[0])
    torch.testing.assert_close(guided[1], negative[1] + 3 * (positive[1] - negative[1]))


def test_a_guided_row_without_spread_stays_finite() -> None:
    flat = torch.zeros(1, 1, 5)
    assert not guide(flat, flat, torch.tensor([2.0]), torch.tensor([1.0])).any()


def test_frames_are_guided_each_by_itself() -> None:
    positive, negative = torch.randn(2, 6, 9)
    whole = guide_frames(positive, negative, 2.5, 0.6)
    for frame in range(6):
        row = positive[frame, None, None], negative[frame, None, None]
        alone = guide(*row, torch.tensor([2.5]), torch.tensor([0.6]))[0]
        torch.testing.assert_close(whole[frame, None], alone)


def test_a_strength_beyond_float32_is_the_largest_that_it_holds() -> None:
    positive, negative = torch.zeros(2, 3), torch.zeros(2, 3)
    largest = torch.finfo(torch.float32).max
    guided = guide_frames(positive, negative, 1e300, 0.0)
    torch.testing.assert_close(guided, guide_frames(positive, negative, largest, 0.0))

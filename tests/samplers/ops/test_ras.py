"""Repetition-aware sampling against its golden distributions."""

from pathlib import Path

import pytest
import torch

from samplers.knobs.params import SamplingParams
from samplers.ops import ras
from samplers.ops.filters import descending, keep_from
from samplers.processors.sample import TokenSampler
from tests.samplers.reference.harness import (
    kept,
    load,
    make_batch,
    make_scores,
    newest_first,
    stack,
)


def test_golden_nucleus_and_repeats_are_met_by_every_row_of_one_batch(golden: Path) -> None:
    cases = load(golden, "ras")
    logits = stack([case["logits"] for case in cases])
    columns = {
        name: torch.tensor([[case["params"][name]] for case in cases])
        for name in cases[0]["params"]
    }
    floor = ras.nucleus_floor(descending(logits), columns["top_p"].float(), columns["top_k"])
    nucleus = keep_from(logits, floor)
    assert kept(nucleus) == [sorted(case["expected"]["nucleus"]) for case in cases]
    recent = newest_first([case["history"] for case in cases])
    for row, case in enumerate(cases):
        for code, repeated in case["expected"]["repeats"].items():
            found = ras.repeats(
                torch.tensor([[int(code)]]), recent[row : row + 1],
                columns["win_size"][row : row + 1], columns["tau_r"][row : row + 1].float(),
            )  # fmt: skip
            assert found.item() == repeated, (case["id"], code)


@pytest.mark.parametrize(
    ("field", "mask_first"), [("probs_paper", False), ("probs_mask_first_pick", True)]
)
def test_golden_output_distributions_follow_from_the_two_draws(
    golden: Path, field: str, mask_first: bool
) -> None:
    for case in load(golden, "ras"):
        logits, expected = stack([case["logits"]]), case["expected"]
        knobs = case["params"]
        top_p, top_k = torch.tensor([[float(knobs["top_p"])]]), torch.tensor([[knobs["top_k"]]])
        nucleus = keep_from(logits, ras.nucleus_floor(descending(logits), top_p, top_k))
        probs = torch.zeros(logits.shape[1])
        for code, chance in enumerate(nucleus.softmax(-1)[0]):
            if expected["repeats"].get(str(code)):
                wide = ras.fallback(logits, torch.tensor([[code]]), torch.tensor([[mask_first]]))
                probs += chance * wide.softmax(-1)[0]
            else:
                probs[code] += chance
        torch.testing.assert_close(probs, stack([expected[field]], 0.0)[0], atol=1e-5, rtol=0)


def test_a_row_with_one_code_left_keeps_it_however_often_it_came() -> None:
    logits = torch.full((1, 4), -torch.inf)
    logits[0, 2] = 0.0
    rows = make_batch([SamplingParams(ras=True)], 4)
    sampled = TokenSampler(rows).sample(make_scores(logits, [[2, 2, 2]], [3]))
    assert sampled.codes.tolist() == [2]

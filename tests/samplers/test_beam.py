"""One step of beam search against golden vectors and its two limits."""

from pathlib import Path

import pytest
import torch

from samplers.beam import beam_step, final_score
from tests.samplers.harness import load, stack


def test_golden_beam_steps(golden: Path) -> None:
    for case in load(golden, "beam_step"):
        parents, codes, scores = beam_step(
            stack(case["logits"]), torch.tensor(case["cum_logprob"]),
            torch.tensor(case["finished"]), case["params"]["beam_width"],
        )  # fmt: skip
        beams = case["expected"]["beams"]
        assert parents.tolist() == [beam["parent"] for beam in beams]
        assert codes.tolist() == [-1 if b["token"] is None else b["token"] for b in beams]
        assert scores.tolist() == pytest.approx([b["cum_logprob"] for b in beams], abs=1e-4)


def test_one_beam_is_greedy() -> None:
    logits = torch.randn(1, 30)
    _, codes, _ = beam_step(logits, torch.zeros(1), torch.zeros(1, dtype=torch.bool), 1)
    assert codes.item() == logits.argmax()


def test_as_many_beams_as_codes_search_two_steps_exhaustively() -> None:
    first, second = torch.randn(1, 6), torch.randn(6, 6)
    alive = torch.zeros(6, dtype=torch.bool)
    _, codes, scores = beam_step(first, torch.zeros(1), alive[:1], 6)
    _, _, best = beam_step(second[codes], scores, alive, 6)
    table = first.log_softmax(-1)[0][:, None] + second.log_softmax(-1)
    torch.testing.assert_close(best, table.flatten().topk(6).values)


def test_a_longer_beam_is_forgiven_its_length() -> None:
    ranked = final_score(torch.tensor([-4.0, -6.0]), torch.tensor([2, 4]), torch.tensor(1.0))
    assert ranked.tolist() == [-2.0, -1.5]

"""Beam search: its step against golden vectors and its limits, and many searches at once."""

from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from samplers.ops.beam import beam_step, extend, final_score
from tests.samplers.reference.harness import load, stack


def test_beam_steps_are_those_of_the_golden_data(golden: Path) -> None:
    for case in load(golden, "beam_step"):
        parents, codes, scores = beam_step(
            stack(case["logits"]), torch.tensor(case["cum_logprob"]),
            torch.tensor(case["finished"]), case["params"]["beam_width"],
        )  # fmt: skip
        beams = case["expected"]["beams"]
        assert parents.tolist() == [beam["parent"] for beam in beams]
        assert codes.tolist() == [-1 if b["token"] is None else b["token"] for b in beams]
        assert scores.tolist() == pytest.approx([b["cum_logprob"] for b in beams], abs=1e-4)


def test_a_longer_beam_is_forgiven_its_length() -> None:
    ranked = final_score(torch.tensor([-4.0, -6.0]), torch.tensor([2, 4]), torch.tensor(1.0))
    assert ranked.tolist() == [-2.0, -1.5]


def test_golden_beams_of_several_searches_are_extended_at_once_where_they_are(golden: Path) -> None:
    cases = [one for one in load(golden, "beam_step") if one["params"]["beam_width"] > 1]
    for case in cases:
        width, logits = case["params"]["beam_width"], stack(case["logits"])
        if len(logits) != width:
            continue
        beams = case["expected"]["beams"]
        # The search twice, another row between each two of its own.
        rows = [list(range(0, 2 * width, 2)), list(range(1, 2 * width, 2))]
        scores = torch.tensor(case["cum_logprob"]).repeat_interleave(2)
        finished = torch.tensor(case["finished"]).repeat_interleave(2)
        found = extend(
            rows, logits.repeat_interleave(2, 0), torch.zeros(2 * width).long(), scores, finished
        )
        for own in rows:
            held = {
                ((found.sources[row] - own[0]) // 2, int(found.codes[row])): float(
                    found.scores[row]
                )
                for row in own
            }
            assert held == pytest.approx({
                (beam["parent"], -1 if beam["token"] is None else beam["token"]): beam[
                    "cum_logprob"
                ]
                for beam in beams
            }, abs=1e-4)  # fmt: skip


@given(st.integers(0, 10**6), st.integers(1, 6), st.integers(1, 4))
def test_whoever_goes_on_stays_in_its_row_and_none_that_is_needed_is_overwritten(
    seed: int, width: int, vocab_size: int
) -> None:
    generator = torch.Generator().manual_seed(seed)
    logits = 3 * torch.randn(width + 1, vocab_size, generator=generator)
    scores = -5 * torch.rand(width + 1, generator=generator)
    finished = torch.rand(width + 1, generator=generator) < 0.3
    scores[1:] = scores[1:].masked_fill(torch.rand(width, generator=generator) < 0.3, -torch.inf)
    finished |= scores == -torch.inf
    codes = torch.full((width + 1,), 7)
    found = extend([list(range(1, width + 1))], logits, codes, scores, finished)
    assert (found.sources[0], int(found.codes[0]), found.scores[0]) == (0, 7, scores[0])
    alive = found.scores > -torch.inf
    for row in range(1, width + 1):
        source = found.sources[row]
        assert source == row or found.sources[source] == source
        if not alive[row]:
            assert (source, int(found.codes[row])) == (row, -1)
            continue
        code = int(found.codes[row])
        assert (code < 0) == bool(finished[source])
        gained = 0.0 if code < 0 else float(logits[source].log_softmax(-1)[code])
        assert float(found.scores[row]) == pytest.approx(float(scores[source]) + gained, abs=1e-5)
    ways = [(row, code) for row in range(1, width + 1) for code in range(vocab_size)]
    possible = [
        float(scores[row] + logits[row].log_softmax(-1)[code])
        for row, code in ways if not finished[row]
    ] + [float(scores[row]) for row in range(1, width + 1) if finished[row]]  # fmt: skip
    best = sorted((score for score in possible if score > -torch.inf), reverse=True)[:width]
    assert sorted(found.scores[1:][alive[1:]].tolist(), reverse=True) == pytest.approx(
        best, abs=1e-5
    )

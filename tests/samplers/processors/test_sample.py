"""Sampling again: the exact distributions, and rows that want it beside rows that do not.

Noise is a hash, so every test here passes or fails for ever.
"""

from collections.abc import Sequence

import pytest
import torch
from torch import Tensor

from samplers.knobs.params import SamplingParams
from samplers.ops.entropix import Decision, State
from samplers.ops.sample import NoiseStream, Stage, categorical, stream_key
from samplers.processors.processor import Scores
from samplers.processors.sample import Noise, Redraw, SampleResult
from tests.samplers.reference.harness import make_batch
from tests.samplers.statistics import chi_square, rejected

DRAWS, CHUNK = 200_000, 20_000
ROW = 1.5 * torch.randn(1, 40, generator=torch.Generator().manual_seed(6))
SEVERAL = SamplingParams(entropix=True, entropix_adaptive_candidates=5)
ANOTHER = SamplingParams(entropix=True, entropix_action="resample")


def scores_of(
    logits: Tensor, seeds: Sequence[int], *, resample: Sequence[bool], candidates: Sequence[int]
) -> Scores:
    count = len(logits)
    nothing = torch.zeros(count, 1, dtype=torch.int64)
    keys = torch.tensor([[stream_key(seed, 0, Stage.AR)] for seed in seeds])
    empty = nothing[:, :0]
    scores = Scores(logits, nothing, empty, empty, empty, keys, nothing)
    scores.decision = Decision(
        torch.full((count, 1), int(State.ADAPTIVE)),
        torch.tensor(resample)[:, None],
        torch.tensor(candidates)[:, None],
        *torch.zeros(2, count, 1, dtype=torch.bool),
    )
    return scores


def redraw(params: SamplingParams, scores: Scores) -> tuple[Tensor, Tensor, Tensor]:
    """The code sampled first, the code in the end, and what that was sampled from."""
    return redrawn([params], scores)


def redrawn(params: Sequence[SamplingParams], scores: Scores) -> tuple[Tensor, Tensor, Tensor]:
    width = scores.logits.shape[1]
    redraw = Redraw(make_batch(params, width))
    draws = range(NoiseStream.CANDIDATE + redraw.candidates)
    code, _, second, *more = (scores.noise(sample, width) for sample in draws)
    first = categorical(scores.logits, code)
    noise = Noise(code, second, torch.stack([second, *more])[1:], code[None])
    return first, *redraw(scores, SampleResult(first, scores.logits), noise)


def counts(params: SamplingParams, row: Tensor, *, resample: bool, candidates: int) -> Tensor:
    width = row.shape[1]
    total = torch.zeros(width, dtype=torch.int64)
    for start in range(0, DRAWS, CHUNK):
        scores = scores_of(
            row.expand(CHUNK, width),
            range(start, start + CHUNK),
            resample=[resample] * CHUNK,
            candidates=[candidates] * CHUNK,
        )
        total += torch.bincount(redraw(params, scores)[1], minlength=width)
    return total


def best_of(probs: Tensor, tries: int) -> Tensor:
    """P(i) = C_i^n - C_(i-1)^n over the codes in ascending order."""
    ordered, places = probs.double().sort()
    below = ordered.cumsum(0).pow(tries)
    chances = torch.diff(below, prepend=torch.zeros(1, dtype=torch.float64))
    return torch.zeros_like(chances).scatter(0, places, chances)


@pytest.mark.slow
def test_a_code_drawn_in_place_of_another_has_the_distribution_of_a_second_pick() -> None:
    probs = ROW.softmax(-1)[0].double()
    pairs = probs[:, None] * probs / (1 - probs[:, None])
    found = counts(ANOTHER, ROW, resample=True, candidates=1)
    assert rejected({"resample": chi_square(found, pairs.fill_diagonal_(0).sum(0))}) == []


@pytest.mark.slow
@pytest.mark.parametrize("tries", [1, 2, 5])
def test_the_likeliest_of_several_candidates_has_the_distribution_of_a_maximum(tries: int) -> None:
    found = counts(SEVERAL, ROW, resample=False, candidates=tries)
    wanted = best_of(ROW.softmax(-1)[0], tries)
    assert rejected({"best": chi_square(found, wanted)}) == []


@pytest.mark.slow
def test_a_filtered_code_is_neither_a_candidate_nor_drawn_in_place_of_another() -> None:
    row = ROW.masked_fill(ROW - ROW.mean() < 0, -torch.inf)
    gone = row[0] == -torch.inf
    for params, resample, candidates in ((SEVERAL, False, 5), (ANOTHER, True, 1)):
        found = counts(params, row, resample=resample, candidates=candidates)
        assert found[gone].sum() == 0


def test_what_a_second_draw_is_from_lacks_the_first_code_and_nothing_else() -> None:
    rows = ROW.expand(50, -1)
    scores = scores_of(rows, range(50), resample=[True] * 50, candidates=[1] * 50)
    first, codes, logits = redraw(ANOTHER, scores)
    assert (codes != first).all()
    assert torch.equal(logits, rows.scatter(1, first[:, None], -torch.inf))


def test_a_row_with_a_single_code_left_keeps_it() -> None:
    row = torch.full((1, 5), -torch.inf)
    row[0, 3] = 1.0
    for params, resample, candidates in ((SEVERAL, False, 5), (ANOTHER, True, 1)):
        scores = scores_of(row, [1], resample=[resample], candidates=[candidates])
        assert redraw(params, scores)[1].tolist() == [3]


def test_rows_want_their_own_number_of_candidates_and_do_not_notice_one_another() -> None:
    wanted = [1, 5, 2, 1, 3]
    resample = [False, False, False, True, False]
    logits = torch.randn(5, 12, generator=torch.Generator().manual_seed(2))
    both = [
        SamplingParams(entropix=True, entropix_action="resample", entropix_adaptive_candidates=n)
        for n in wanted
    ]
    together = scores_of(logits, range(5), resample=resample, candidates=wanted)
    first, codes, _ = redrawn(both, together)
    for row in range(5):
        alone = scores_of(
            logits[row, None], [row], resample=[resample[row]], candidates=[wanted[row]]
        )
        assert redraw(both[row], alone)[1].tolist() == [codes[row]]
    assert codes[0] == first[0]


def test_equal_candidates_are_settled_by_which_was_drawn_first() -> None:
    flat = torch.zeros(50, 9)
    scores = scores_of(flat, range(50), resample=[False] * 50, candidates=[5] * 50)
    first, codes, _ = redraw(SEVERAL, scores)
    assert torch.equal(first, codes)

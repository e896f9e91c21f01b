"""Beam search: finds the best sequence if wide enough, and is exact wherever its rows are moved."""

from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np
import pytest
import torch

from app.engine.job import STOPPED
from models.checkpoints import load_lm
from models.valle import Valle
from tests.app.engine.level_0.batches import (
    ENDING,
    alone,
    assert_read_its_own,
    batch_of,
    logits_after,
    logprobs_of,
    traced,
)
from tests.toy.make_toy import MODEL, make

GUIDED: dict[str, Any] = {"cfg_strength": 2.0, "cfg_rescale": 0.3}


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Valle:
    """A model of two codes and the stop, small enough to try everything."""
    folder = tmp_path_factory.mktemp("tiny")
    return load_lm(make(folder, config=MODEL.model_copy(update={"codes": 2})))


def everything(frames: int) -> Iterator[tuple[tuple[int, ...], bool]]:
    """All codes of 0 and 1 that may come of a search, and whether the stop follows."""
    for length in range(frames):
        yield from ((codes, True) for codes in product((0, 1), repeat=length))
    yield from ((codes, False) for codes in product((0, 1), repeat=frames))


@pytest.mark.slow
@pytest.mark.parametrize("guidance", [{}, GUIDED])
@pytest.mark.parametrize("power", [0.0, 0.7, 1.0, 2.0])
@pytest.mark.parametrize("heat", [1.0, 3.0])
def test_as_wide_as_everything_it_finds_the_best_of_everything(
    tiny: Valle, power: float, heat: float, guidance: dict[str, float]
) -> None:
    for seed in range(5):
        one = traced(
            seed, max_frames=4, beam_width=31, beam_length_power=power, temperature=heat, **guidance
        )
        ranks = {}
        for codes, stops in everything(4):
            tokens = [*codes, *[2] * stops]
            _, guided = logits_after(tiny, one, codes)
            ranks[codes, stops] = (
                float(logprobs_of(guided / heat, tokens).sum()) / len(tokens) ** power
            )
        best = max(ranks, key=lambda way: ranks[way])
        found = alone(tiny, one)
        assert (tuple(found.codes().tolist()), found.finish_reason in STOPPED) == best
        assert max(one.score for one in found.ranked) == pytest.approx(ranks[best], abs=1e-4)


def test_narrower_it_finds_what_the_textbook_finds(tiny: Valle) -> None:
    for seed, width in product(range(6), (2, 3)):
        one = traced(seed, max_frames=6, beam_width=width, **GUIDED)
        beams: list[tuple[float, tuple[int, ...], bool]] = [(0.0, (), False)]
        for _ in range(6):
            wider = [beam for beam in beams if beam[2]]
            for score, codes, _ in (beam for beam in beams if not beam[2]):
                _, guided = logits_after(tiny, one, codes)
                for token, logprob in enumerate(guided[-1].log_softmax(-1).tolist()):
                    ends = token == 2
                    wider.append((score + logprob, codes if ends else (*codes, token), ends))
            beams = sorted(wider, reverse=True)[:width]
        ranks = [score / (len(codes) + ends) for score, codes, ends in beams]
        score, codes, ends = beams[int(np.argmax(ranks))]
        found = alone(tiny, one)
        assert (tuple(found.codes().tolist()), found.finish_reason in STOPPED) == (codes, ends)


@pytest.mark.parametrize("knobs", [{}, GUIDED, ENDING, {"repetition_penalty": 1.5}])
def test_one_beam_is_greedy_and_so_are_several_that_have_no_choice(
    model: Valle, knobs: dict[str, Any]
) -> None:
    greedy = alone(model, traced(temperature=0.0, **knobs))
    searches: list[dict[str, Any]] = [{"beam_width": 1}, {"beam_width": 4, "top_k": 1}]
    for search in searches:
        found = alone(model, traced(**search, **knobs))
        assert torch.equal(found.codes(), greedy.codes())
        assert found.finish_reason == greedy.finish_reason


@pytest.mark.parametrize("knobs", [{}, GUIDED, {"dry_multiplier": 1.0, "dry_allowed_length": 1}])
def test_what_is_kept_has_read_its_own_frames_and_no_others(
    model: Valle, knobs: dict[str, Any]
) -> None:
    one = traced(beam_width=5, max_frames=40, temperature=2.0, ban_tokens=(512,), **knobs)
    batch = batch_of(model)
    utterance = batch.admit(one)
    hypotheses, moves = list(utterance.hypotheses), 0
    while batch.running:
        before = [list(one.codes) for one in hypotheses]
        batch.step()
        moves += sum(
            one.codes[: len(codes)] != codes for one, codes in zip(hypotheses, before, strict=True)
        )
    assert moves > 10
    assert_read_its_own(model, utterance)
    (kept,) = (one for one in utterance.ranked if one.kept)
    assert utterance.trace is not None
    assert kept.score == pytest.approx(utterance.trace["score"].mean(), abs=1e-4)
    assert kept.score == max(one.score for one in utterance.ranked)


def test_the_seed_changes_nothing(model: Valle) -> None:
    several = [alone(model, traced(seed, beam_width=3)) for seed in (1, 6)]
    assert torch.equal(several[0].codes(), several[1].codes())


def test_it_ends_as_soon_as_nothing_can_overtake_and_nothing_is_final_before(
    model: Valle,
) -> None:
    batch = batch_of(model)
    sure = batch.admit(traced(beam_width=4, logit_bias={512: 60.0}, min_frames=3))
    steps = 0
    while batch.running:
        assert (sure.final, batch.free_rows) == (0, 26)
        batch.step()
        steps += 1
    assert (steps, sure.final, sure.finish_reason, batch.free_rows) == (4, 3, "stop", 30)


def test_a_search_that_has_nothing_to_go_on_with_ends(model: Valle) -> None:
    found = alone(model, traced(beam_width=3, ban_tokens=tuple(range(513))))
    assert (len(found), found.finish_reason) == (0, "empty")

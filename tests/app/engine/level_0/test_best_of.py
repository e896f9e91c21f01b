"""Best of n: each hypothesis has the codes that it has alone; the highest rank is kept."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from app.engine.job import STOPPED
from app.engine.level_0.hypothesis import Hypothesis
from app.engine.level_0.hypothesis_group import HypothesisGroup
from app.engine.utterance import ContextUtterance, KeptFrames, UtteranceInput
from models.alignment.attention import TextAttention
from models.alignment.path import followed
from models.config import AlignmentHead
from models.prefix_cache import PrefixCache
from models.valle import Valle
from tests.app.engine.level_0.batches import (
    EAGER,
    ENDING,
    GUIDED,
    alone,
    batch_of,
    finish,
    logits_after,
    logprobs_of,
    traced,
)

STOP = 512
HEAD = AlignmentHead(layer=1, head=1)
PLAIN_RANK: dict[str, Any] = {
    "rank_alignment_weight": 0.0,
    "rank_loop_penalty": 0.0,
    "rank_silence_penalty": 0.0,
    "rank_length_penalty": 0.0,
}


@pytest.fixture
def headed(model: Valle) -> Iterator[Valle]:
    """The model, as if its card named an alignment head."""
    plain = model.config
    model.config = plain.model_copy(update={"alignment": HEAD})
    yield model
    model.config = plain


def hypotheses_of(model: Valle, one: UtteranceInput) -> tuple[list[Hypothesis], HypothesisGroup]:
    """All hypotheses of an utterance as they ended, and their group."""
    batch = batch_of(model)
    utterance = batch.admit(one)
    hypotheses = list(utterance.hypotheses)
    finish(batch)
    return hypotheses, utterance


def test_the_first_hypothesis_is_that_of_an_utterance_with_one(model: Valle) -> None:
    for knobs in ({}, ENDING | GUIDED, EAGER | {"temperature": 0.3}):
        hypotheses, _ = hypotheses_of(model, traced(best_of=3, **knobs))
        single = alone(model, traced(**knobs))
        assert hypotheses[0].codes == single.codes().tolist()
        assert hypotheses[0].finish_reason == single.finish_reason


def test_a_hypothesis_does_not_depend_on_how_many_there_are_and_differs_from_the_others(
    model: Valle,
) -> None:
    few, _ = hypotheses_of(model, traced(best_of=2))
    many, _ = hypotheses_of(model, traced(best_of=5))
    assert [one.codes for one in few] == [one.codes for one in many[:2]]
    assert len({tuple(one.codes) for one in many}) == 5


def test_without_penalties_the_likeliest_that_drew_the_stop_is_kept(model: Valle) -> None:
    asked = traced(best_of=6, max_frames=12, **ENDING, **GUIDED, **PLAIN_RANK)
    hypotheses, utterance = hypotheses_of(model, asked)
    assert {one.finish_reason for one in hypotheses} == {"stop", "length", "empty"}
    means = []
    for one in hypotheses:
        own, _ = logits_after(model, asked, one.codes)
        tokens = one.codes + [STOP] * (one.finish_reason in STOPPED)
        means.append(float(logprobs_of(own, tokens).mean()))
    ranked = utterance.ranked
    tolerance = 1e-4
    assert [one.score for one in ranked] == pytest.approx(means, abs=tolerance)
    assert [one.frames for one in ranked] == [len(one.codes) for one in hypotheses]
    assert [one.finish_reason for one in ranked] == [one.finish_reason for one in hypotheses]
    by_themselves = [number for number, one in enumerate(hypotheses) if one.finish_reason == "stop"]
    best = max(by_themselves, key=lambda number: ranked[number].score)
    assert [one.kept for one in ranked] == [number == best for number in range(6)]
    assert utterance.codes().tolist() == hypotheses[best].codes
    assert utterance.trace is not None
    assert np.mean(utterance.trace["logprob"]) == pytest.approx(ranked[best].score, abs=1e-5)


def test_a_take_that_says_nothing_is_kept_only_where_all_say_nothing(model: Valle) -> None:
    at_once: dict[str, Any] = {"logit_bias": {STOP: 100.0}}
    _, nothing = hypotheses_of(model, traced(best_of=3, **at_once))
    assert (nothing.finish_reason, len(nothing)) == ("empty", 0)
    assert [(one.finish_reason, one.frames) for one in nothing.ranked] == [("empty", 0)] * 3
    half: dict[str, Any] = {
        "logit_bias": {STOP: 6.0}
    }  # so likely that some takes stop at once and others do not
    mixed = 0
    for seed in range(20):
        _, chosen = hypotheses_of(model, traced(best_of=4, seed=seed, max_frames=8, **half))
        reasons = {one.finish_reason for one in chosen.ranked}
        mixed += len(reasons) > 1 and "empty" in reasons
        assert (chosen.finish_reason == "empty") == (reasons == {"empty"})
    assert mixed


def test_where_none_ends_by_itself_the_rank_alone_decides(model: Valle) -> None:
    hypotheses, utterance = hypotheses_of(
        model, traced(best_of=4, ban_tokens=(STOP,), **PLAIN_RANK)
    )
    scores = [one.score for one in utterance.ranked]
    assert utterance.finish_reason == "length"
    assert utterance.codes().tolist() == hypotheses[scores.index(max(scores))].codes


def test_a_penalty_lowers_the_rank_by_what_it_says(model: Valle) -> None:
    _, plain = hypotheses_of(model, traced(best_of=4, **ENDING, **PLAIN_RANK))
    _, weighed = hypotheses_of(
        model, traced(best_of=4, **ENDING, **PLAIN_RANK | {"rank_length_penalty": 3.0})
    )
    frames = [one.frames for one in plain.ranked]
    usual = np.median(frames)
    for before, after in zip(plain.ranked, weighed.ranked, strict=True):
        oddity = abs(np.log((before.frames + 1) / (usual + 1)))
        assert before.score - after.score == pytest.approx(3 * oddity, abs=1e-6)


CONTEXT = ContextUtterance([1, 11, 12, 13, 2], torch.arange(7))
PROMPT = torch.arange(24).reshape(3, 8)


@pytest.mark.parametrize(
    "changes",
    [{}, {"context": (CONTEXT,)}, {"prompt": PROMPT}, {"kept": KeptFrames(PROMPT)}],
    ids=["alone", "after another", "with a prompt", "from a take"],
)
@pytest.mark.parametrize("knobs", [{}, {"prompt_as_prefix": True}, GUIDED])
def test_what_follows_the_text_ranks_higher_by_its_weight(
    headed: Valle, changes: dict[str, Any], knobs: dict[str, Any]
) -> None:
    asked = replace(traced(best_of=3, **knobs, **PLAIN_RANK), **changes)
    params = asked.params.model_copy(update={"rank_alignment_weight": 3.0})
    hypotheses, plain = hypotheses_of(headed, asked)
    _, weighed = hypotheses_of(headed, replace(asked, params=params))
    for one, before, after in zip(hypotheses, plain.ranked, weighed.ranked, strict=True):
        follows = followed(attention_of(headed, asked, one.codes))
        assert after.score - before.score == pytest.approx(3 * follows, abs=1e-3)


def attention_of(model: Valle, asked: UtteranceInput, codes: list[int]) -> np.ndarray:
    """How much each frame attends to the utterance's own symbols, from an empty cache."""
    head, prefix = model.config.alignment, asked.ar_prefixes(model)[0]
    assert head is not None
    cache = model.new_cache(1, len(prefix) + len(codes))
    rest = PrefixCache(model).begin(prefix, 0, cache, 0, None)
    text = asked.own_text(prefix)
    own = model.phonemes(torch.tensor(asked.phoneme_ids[1:-1]))
    assert torch.equal(prefix.embeddings[text][1:-1], own)
    reading = TextAttention(model, prefix, rest, cache, text=text, head=head)
    return reading.push(torch.tensor(codes))[0].numpy()


def test_nothing_is_final_before_all_have_ended_and_each_row_is_free_at_its_end(
    model: Valle,
) -> None:
    batch = batch_of(model, slots=10)
    utterance = batch.admit(traced(best_of=5, **ENDING, **GUIDED))
    hypotheses = list(utterance.hypotheses)
    assert batch.free_rows == 0
    while batch.running:
        batch.step()
        going = sum(one.finish_reason is None for one in hypotheses)
        assert batch.free_rows == 10 - 2 * going
        assert utterance.final == (0 if going else len(utterance))
    assert batch.free_rows == 10

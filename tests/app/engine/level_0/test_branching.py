"""Entropix's branch: an utterance forks, and the best branch continues as if it were alone."""

from typing import Any

import numpy as np
import pytest
import torch

from app.engine.level_0.hypothesis import Hypothesis
from app.engine.level_0.hypothesis_group import HypothesisGroup
from app.engine.utterance import UtteranceInput
from models.checkpoints import load_speech_model
from models.int8.quantized import quantize_linears
from models.valle import Valle
from samplers.knobs.params import SamplingParams
from samplers.ranking import rank
from tests.app.engine.level_0.batches import (
    alone,
    assert_as_alone,
    batch_of,
    finish,
    logits_after,
    logprobs_of,
    spoil,
)

STOP = 512
# Every code is in the state HELV, where only branches change anything.
BRANCH: dict[str, Any] = {
    "entropix": True,
    "entropix_action": "branch",
    "entropix_low_entropy": 0.0,
    "entropix_helv_entropy": 0.0,
    "entropix_low_varentropy": 1e3,
    "entropix_branch_rollouts": 3,
    "entropix_branch_frames": 4,
    "entropix_branch_interval": 7,
}
GUIDED: dict[str, Any] = {"cfg_strength": 1.5}
ENDING: dict[str, Any] = {"logit_bias": {STOP: 4.0}}


@pytest.fixture(scope="module", params=["float32", "int8"])
def model(toy, request: pytest.FixtureRequest) -> Valle:
    model = load_speech_model(toy, torch.device("cpu")).model
    if request.param == "int8":
        quantize_linears(model)
    return model


def inputs(seed: int = 1, max_frames: int = 40, **knobs: Any) -> UtteranceInput:
    ids = [1, *range(10, 12 + seed % 5), 2]
    return UtteranceInput(ids, SamplingParams(**BRANCH | knobs), seed, 0, max_frames, trace=True)


def test_where_there_is_no_room_to_branch_it_is_as_without_entropix(model: Valle) -> None:
    found = alone(model, inputs(max_frames=20, entropix_branch_frames=30))
    one = inputs(max_frames=20, entropix=False)
    assert torch.equal(found.codes(), alone(model, one).codes())
    assert found.trace is not None
    assert not found.trace["branched"].any()


@pytest.mark.parametrize(
    "knobs", [{}, GUIDED, {"dry_multiplier": 1.0, "dry_allowed_length": 1, "temperature": 1.5}]
)
def test_the_kept_branch_has_read_its_own_frames_and_no_others(
    model: Valle, knobs: dict[str, Any]
) -> None:
    one = inputs(ban_tokens=(STOP,), **knobs)
    found = alone(model, one)
    codes, trace = found.codes().tolist(), found.trace
    assert trace is not None
    assert trace["code"].tolist() == codes
    assert trace["frame"].tolist() == list(range(40))
    assert trace["frame"][trace["branched"]].tolist() == [0, 7, 14, 21, 28, 35]
    own, guided = logits_after(model, one, codes)
    np.testing.assert_allclose(trace["logprob"], logprobs_of(own, codes), atol=2e-4)
    np.testing.assert_allclose(trace["guided_logprob"], logprobs_of(guided, codes), atol=2e-4)


def test_branches_differ_from_the_fork_on_and_the_highest_rank_is_kept(model: Valle) -> None:
    for seed in range(6):
        batch = batch_of(model)
        utterance = batch.admit(inputs(seed, **ENDING, **GUIDED))
        hypotheses: list[Hypothesis] = []
        while batch.running:
            several = len(utterance.hypotheses) > 1
            hypotheses = list(utterance.hypotheses)
            batch.step()
            if several and len(utterance.hypotheses) == 1:
                assert_best(utterance, hypotheses)
    assert hypotheses


def assert_best(utterance: HypothesisGroup, hypotheses: list[Hypothesis]) -> None:
    """Assert that the utterance kept the branch that is likeliest since the fork."""
    start = next(
        frame
        for frame in range(100)
        if len({one.codes[frame] if frame < len(one.codes) else STOP for one in hypotheses}) > 1
    )
    assert len({tuple(one.codes[start : start + 1]) for one in hypotheses}) == len(hypotheses)
    ranks = [
        rank(one.logprobs[start:], one.codes, [], utterance.inputs.params, start=start)
        for one in hypotheses
    ]
    assert utterance.hypotheses[0] is hypotheses[ranks.index(max(ranks))]


def test_the_best_branch_is_not_always_the_first(model: Valle) -> None:
    single = alone(model, inputs(entropix=False, ban_tokens=(STOP,)))
    several = alone(model, inputs(ban_tokens=(STOP,)))
    assert not torch.equal(single.codes(), several.codes())
    assert several.trace is not None
    assert single.trace is not None
    assert several.trace["logprob"].mean() > single.trace["logprob"].mean()


def test_only_what_all_ways_have_in_common_is_final(model: Valle) -> None:
    batch = batch_of(model)
    utterance = batch.admit(inputs(ban_tokens=(STOP,)))
    finals, counts = [], []
    while batch.running:
        batch.step()
        finals.append(utterance.final)
        counts.append(len(utterance.hypotheses))
    apart = [frame % 7 in {0, 1, 2} for frame in range(40)]
    assert [count > 1 for count in counts] == apart
    assert finals == [
        frame - frame % 7 if several else frame + 1 for frame, several in enumerate(apart)
    ]


def test_what_is_final_is_never_drawn_otherwise(model: Valle) -> None:
    batch = batch_of(model)
    utterance = batch.admit(inputs(ban_tokens=(STOP,), **GUIDED))
    final: list[int] = []
    while batch.running:
        batch.step()
        codes = utterance.codes(0, utterance.final).tolist()
        assert codes[: len(final)] == final
        final = codes
    assert final == utterance.codes().tolist()


def test_among_others_it_is_as_alone(model: Valle) -> None:
    batch, utterances = batch_of(model, slots=60), list[HypothesisGroup]()
    kinds: list[dict[str, Any]] = [GUIDED, ENDING, {}, ENDING | GUIDED]
    for seed, knobs in enumerate(kinds):
        utterances.append(batch.admit(inputs(seed, entropix_branch_rollouts=2 + seed, **knobs)))
        batch.admit(inputs(seed + 10, max_frames=7))
        for number in range(3):
            batch.step()
            batch.pause(utterances[number % len(utterances)])
            batch.step()
            batch.resume(utterances[number % len(utterances)])
    finish(batch)
    assert batch.free_rows == 60
    assert {"stop", "length"} == {utterance.finish_reason for utterance in utterances}
    for utterance in utterances:
        assert_as_alone(model, utterance)


def test_its_rows_are_held_from_the_beginning_and_free_at_the_end(model: Valle) -> None:
    batch = batch_of(model, slots=6)
    utterance = batch.admit(inputs(**GUIDED))
    for _ in range(6):
        assert batch.free_rows == 0
        batch.step()
    batch.cancel(utterance)
    assert (batch.free_rows, batch.running, batch.step()) == (6, (), ())


def test_a_way_that_is_no_number_ends_its_utterance_and_frees_its_rows(model: Valle) -> None:
    batch = batch_of(model)
    broken, sound = batch.admit(inputs(**GUIDED)), batch.admit(inputs(2, max_frames=12))
    batch.step()
    spoil(batch, broken.hypotheses[2].conditions[0].slot)
    batch.step()
    assert (broken.finish_reason, batch.free_rows) == ("error", 27)
    finish(batch)
    assert_as_alone(model, sound)

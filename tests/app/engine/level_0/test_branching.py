"""Entropix's branch: an utterance forks, and the best branch continues as if it were alone."""

from typing import Any

import pytest
import torch

from app.engine.level_0.hypothesis import Hypothesis
from app.engine.level_0.hypothesis_group import HypothesisGroup
from app.engine.utterance import UtteranceInput
from models.valle import Valle
from samplers.ranking import rank
from tests.app.engine.level_0.batches import (
    BRANCH,
    ENDING,
    GUIDED,
    alone,
    assert_read_its_own,
    batch_of,
    traced,
)

STOP = 512


def inputs(seed: int = 1, max_frames: int = 40, **knobs: Any) -> UtteranceInput:
    return traced(seed, max_frames, **BRANCH | knobs)


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
    found = alone(model, inputs(ban_tokens=(STOP,), **knobs))
    assert_read_its_own(model, found)
    trace = found.trace
    assert trace is not None
    assert trace["frame"].tolist() == list(range(40))
    assert trace["frame"][trace["branched"]].tolist() == [0, 7, 14, 21, 28, 35]


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


def test_its_rows_are_held_from_the_beginning_and_free_at_the_end(model: Valle) -> None:
    batch = batch_of(model, slots=6)
    utterance = batch.admit(inputs(**GUIDED))
    for _ in range(6):
        assert batch.free_rows == 0
        batch.step()
    batch.cancel(utterance)
    assert (batch.free_rows, batch.running, batch.step()) == (6, (), ())

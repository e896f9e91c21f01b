"""Best of several takes: each is what it is alone, and the best by the stated rank is kept."""

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
ENDING: dict[str, Any] = {"logit_bias": {STOP: 4.0}}
EAGER: dict[str, Any] = {"backtrack": True, "backtrack_min_repeats": 2, "backtrack_min_frames": 2}
GUIDED: dict[str, Any] = {"cfg_strength": 1.5}
PLAIN_RANK: dict[str, Any] = {
    "rank_loop_penalty": 0.0,
    "rank_silence_penalty": 0.0,
    "rank_length_penalty": 0.0,
}


@pytest.fixture(scope="module", params=["float32", "int8"])
def model(toy, request: pytest.FixtureRequest) -> Valle:
    model = load_speech_model(toy, torch.device("cpu")).model
    if request.param == "int8":
        quantize_linears(model)
    return model


def inputs(seed: int = 1, max_frames: int = 30, **knobs: Any) -> UtteranceInput:
    ids = [1, *range(10, 12 + seed % 5), 2]
    return UtteranceInput(ids, SamplingParams(**knobs), seed, 0, max_frames, trace=True)


def takes_of(model: Valle, one: UtteranceInput) -> tuple[list[Hypothesis], HypothesisGroup]:
    """All takes of a piece as they ended, and the piece."""
    batch = batch_of(model)
    utterance = batch.admit(one)
    takes = list(utterance.hypotheses)
    finish(batch)
    return takes, utterance


def test_the_first_take_is_what_there_is_without_the_others(model: Valle) -> None:
    for knobs in ({}, ENDING | GUIDED, EAGER | {"temperature": 0.3}):
        takes, _ = takes_of(model, inputs(best_of=3, **knobs))
        single = alone(model, inputs(**knobs))
        assert takes[0].codes == single.codes().tolist()
        assert takes[0].finish_reason == single.finish_reason


def test_a_take_does_not_depend_on_how_many_there_are_and_differs_from_the_others(
    model: Valle,
) -> None:
    few, _ = takes_of(model, inputs(best_of=2))
    many, _ = takes_of(model, inputs(best_of=5))
    assert [take.codes for take in few] == [take.codes for take in many[:2]]
    assert len({tuple(take.codes) for take in many}) == 5


def test_among_others_it_is_as_alone(model: Valle) -> None:
    batch, utterances = batch_of(model), list[HypothesisGroup]()
    kinds: list[dict[str, Any]] = [ENDING, GUIDED | ENDING, {}, EAGER | {"temperature": 0.3}]
    for seed, knobs in enumerate(kinds):
        utterances.append(batch.admit(inputs(seed, best_of=1 + (seed + 2) % 4, **knobs)))
        batch.step()
        batch.pause(utterances[0])
        batch.step()
        batch.resume(utterances[0])
    finish(batch)
    assert batch.free_rows == 30
    for utterance in utterances:
        assert_as_alone(model, utterance)


def test_without_penalties_the_likeliest_take_that_ended_by_itself_is_kept(model: Valle) -> None:
    one = inputs(best_of=6, max_frames=12, **ENDING, **GUIDED, **PLAIN_RANK)
    takes, utterance = takes_of(model, one)
    assert {take.finish_reason for take in takes} == {"stop", "length"}
    means = []
    for take in takes:
        own, _ = logits_after(model, one, take.codes)
        tokens = take.codes + [STOP] * (take.finish_reason == "stop")
        means.append(float(logprobs_of(own, tokens).mean()))
    ranked = utterance.ranked
    tolerance = 1e-4
    assert [take.score for take in ranked] == pytest.approx(means, abs=tolerance)
    assert [take.frames for take in ranked] == [len(take.codes) for take in takes]
    assert [take.finish_reason for take in ranked] == [take.finish_reason for take in takes]
    by_themselves = [number for number, take in enumerate(takes) if take.finish_reason == "stop"]
    best = max(by_themselves, key=lambda number: ranked[number].score)
    assert [take.kept for take in ranked] == [number == best for number in range(6)]
    assert utterance.codes().tolist() == takes[best].codes
    assert utterance.trace is not None
    assert np.mean(utterance.trace["logprob"]) == pytest.approx(ranked[best].score, abs=1e-5)


def test_where_none_ends_by_itself_the_rank_alone_decides(model: Valle) -> None:
    takes, utterance = takes_of(model, inputs(best_of=4, ban_tokens=(STOP,), **PLAIN_RANK))
    scores = [take.score for take in utterance.ranked]
    assert utterance.finish_reason == "length"
    assert utterance.codes().tolist() == takes[scores.index(max(scores))].codes


def test_a_penalty_takes_from_the_rank_what_it_says(model: Valle) -> None:
    _, plain = takes_of(model, inputs(best_of=4, **ENDING, **PLAIN_RANK))
    _, weighed = takes_of(
        model, inputs(best_of=4, **ENDING, **PLAIN_RANK | {"rank_length_penalty": 3.0})
    )
    frames = [take.frames for take in plain.ranked]
    usual = np.median(frames)
    for before, after in zip(plain.ranked, weighed.ranked, strict=True):
        oddity = abs(np.log((before.frames + 1) / (usual + 1)))
        assert before.score - after.score == pytest.approx(3 * oddity, abs=1e-6)


def test_nothing_is_final_before_all_have_ended_and_each_row_is_free_at_its_end(
    model: Valle,
) -> None:
    batch = batch_of(model, slots=10)
    utterance = batch.admit(inputs(best_of=5, **ENDING, **GUIDED))
    takes = list(utterance.hypotheses)
    assert batch.free_rows == 0
    while batch.running:
        batch.step()
        going = sum(take.finish_reason is None for take in takes)
        assert batch.free_rows == 10 - 2 * going
        assert utterance.final == (0 if going else len(utterance))
    assert batch.free_rows == 10


def test_a_take_that_is_no_number_ends_its_utterance_and_frees_its_rows(model: Valle) -> None:
    batch = batch_of(model)
    broken, sound = batch.admit(inputs(best_of=3, **GUIDED)), batch.admit(inputs(2))
    batch.step()
    spoil(batch, broken.hypotheses[2].conditions[1].slot)
    batch.step()
    assert (broken.finish_reason, broken.final) == ("error", len(broken))
    assert batch.free_rows == 29
    finish(batch)
    assert_as_alone(model, sound)


def test_it_may_be_dropped_before_it_ends_paused_or_not(model: Valle) -> None:
    batch = batch_of(model)
    utterance = batch.admit(inputs(best_of=4))
    batch.step()
    batch.cancel(utterance)
    assert (batch.free_rows, utterance.finish_reason) == (30, "cancelled")
    utterance = batch.admit(inputs(best_of=4))
    batch.pause(utterance)
    batch.cancel(utterance)
    assert (batch.free_rows, batch.running, batch.step()) == (30, (), ())


def test_an_admission_that_fails_at_a_later_take_leaves_nothing_behind(
    model: Valle, monkeypatch: pytest.MonkeyPatch
) -> None:
    batch = batch_of(model)
    begin, begun = batch._batch.add, list[int]()

    def begin_once(takes: list[Hypothesis], one: UtteranceInput, candidate: int = 0) -> None:
        begun.append(candidate)
        if candidate:
            raise MemoryError
        begin(takes, one, candidate)

    monkeypatch.setattr(batch._batch, "add", begin_once)
    with pytest.raises(MemoryError):
        batch.admit(inputs(best_of=3))
    monkeypatch.undo()
    assert (begun, batch.free_rows, batch.step()) == ([0, 1], 30, ())
    utterance = batch.admit(inputs(best_of=2))
    finish(batch)
    assert_as_alone(model, utterance)

"""Several sequences of an utterance: best of n, beam search, and entropix's branch.

Each has the codes that it has alone or by the textbook, wherever its rows are moved; one is kept.
"""

from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest
import torch

from app.engine.ar.sequence import ArSequence
from app.engine.ar.sequence_group import SequenceOrGroup
from app.engine.results import STOPPED
from app.engine.utterance import ContextUtterance, UtteranceSpec
from models.alignment.attention import TextAttention
from models.alignment.path import followed
from models.checkpoints.builtin import load_lm
from models.prefix_cache import PrefixCache, SlotPrefix, one_by_one
from models.stack.taps import Taps
from models.valle import Valle
from samplers.ranking import oddity, rank
from tests.app.engine.ar.requests import (
    alone,
    assert_read_its_own,
    finish,
    logits_after,
    logprobs_of,
    runner,
    traced,
)
from tests.app.engine.decoding import spoken
from tests.samplers.ar.rows import BRANCH, EAGER, ENDING, GUIDED
from tests.toy.make_toy import MODEL, make

STOP = 512


def sequences_of(model: Valle, one: UtteranceSpec) -> tuple[list[ArSequence], SequenceOrGroup]:
    """All sequences of an utterance as they ended, and their group."""
    batch = runner(model)
    utterance = batch.admit(one)
    sequences = list(utterance.sequences)
    finish(batch)
    return sequences, utterance


@pytest.mark.slow
def test_a_hypothesis_does_not_depend_on_how_many_there_are(model: Valle) -> None:
    for knobs in ({}, ENDING | GUIDED, EAGER | {"temperature": 0.3}):
        sequences, _ = sequences_of(model, traced(best_of=3, **knobs))
        few, _ = sequences_of(model, traced(best_of=2, **knobs))
        single = alone(model, traced(**knobs))
        assert [one.codes for one in few] == [one.codes for one in sequences[:2]]
        assert sequences[0].codes == single.ar_codes().tolist()
        assert sequences[0].finish_reason == single.finish_reason


CONTEXT = ContextUtterance([1, 11, 12, 13, 2], torch.arange(7))
PROMPT = torch.arange(24).reshape(3, 8)
AT_ONCE: dict[str, Any] = {"logit_bias": {STOP: 100.0}}
HALF_AT_ONCE: dict[str, Any] = {"logit_bias": {STOP: 6.0}}  # some stop at once, others do not


@pytest.mark.parametrize(
    "changes",
    [{}, {"context": (CONTEXT,)}, {"prompt": PROMPT}, {"kept": spoken(PROMPT)}],
    ids=["alone", "after another", "with a prompt", "from a take"],
)
@pytest.mark.parametrize(
    "knobs", [ENDING, ENDING | {"prompt_as_prefix": True}, ENDING | GUIDED, AT_ONCE, HALF_AT_ONCE]
)
def test_of_those_that_drew_the_stop_or_say_something_the_one_that_ranks_highest_is_kept(
    model: Valle, changes: dict[str, Any], knobs: dict[str, Any]
) -> None:
    weights: dict[str, Any] = {"rank_alignment_weight": 3.0, "rank_length_penalty": 0.5}
    asked = replace(traced(best_of=6, max_frames=12, **knobs, **weights), **changes)
    sequences, utterance = sequences_of(model, asked)
    scores = list[float]()
    for one, odd in zip(sequences, oddity([len(one.codes) for one in sequences]), strict=True):
        own, _ = logits_after(model, asked, one.codes)
        tokens = one.codes + [STOP] * (one.finish_reason in STOPPED)
        logprobs = logprobs_of(own, tokens).tolist()
        follows = followed(attention_of(model, asked, one.codes)) if one.codes else 0.0
        scores.append(rank(logprobs, one.codes, [], asked.params, followed=follows) - odd / 2)
    reasons = [one.finish_reason for one in sequences]
    assert changes or knobs is AT_ONCE or len({*reasons}) > 1
    best = max(range(6), key=lambda number: (
        reasons[number] == "stop", reasons[number] != "empty", scores[number]
    ))  # fmt: skip
    assert [one.score for one in utterance.ranked] == pytest.approx(scores, abs=1e-3)
    assert [(one.frames, one.finish_reason, one.kept) for one in utterance.ranked] == [
        (len(one.codes), one.finish_reason, number == best) for number, one in enumerate(sequences)
    ]
    assert utterance.ar_codes().tolist() == sequences[best].codes


def attention_of(model: Valle, asked: UtteranceSpec, codes: list[int]) -> np.ndarray:
    """How much each frame attends to the utterance's own symbols, from an empty cache."""
    head, prefix = model.config.alignment, asked.ar_prefixes(model)[0]
    assert head is not None
    cache = model.new_cache(1, len(prefix) + len(codes))
    read = one_by_one(model, Taps([head.layer]))
    PrefixCache(model).begin([SlotPrefix(prefix, 0, None)], cache, read)
    text = asked.own_text(prefix)
    own = model.phonemes(torch.tensor(asked.phoneme_ids[1:-1]))
    assert torch.equal(prefix.embeddings[text][1:-1], own)
    reading = TextAttention(model, prefix, cache, 0, read, text=text)
    return reading.push(torch.tensor(codes, dtype=torch.int64))[0].numpy()


def test_nothing_is_final_before_all_have_ended_and_each_row_is_free_at_its_end(
    model: Valle,
) -> None:
    batch = runner(model, slots=10)
    utterance = batch.admit(traced(best_of=5, **ENDING, **GUIDED))
    sequences = list(utterance.sequences)
    assert batch.free_rows == 0
    while batch.running:
        batch.step()
        going = sum(one.finish_reason is None for one in sequences)
        assert batch.free_rows == 10 - 2 * going
        assert utterance.final == (0 if going else len(utterance))
    assert batch.free_rows == 10


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Valle:
    """A model of two codes and the stop, small enough to try everything."""
    folder = tmp_path_factory.mktemp("tiny")
    return load_lm(make(folder, config=MODEL.model_copy(update={"codes": 2})))


@pytest.mark.slow
def test_a_search_finds_what_the_textbook_finds_also_as_wide_as_everything(tiny: Valle) -> None:
    for seed, width, power in product(range(3), (1, 2, 3, 31), (0.0, 1.0, 2.0)):
        one = traced(
            seed, max_frames=4, beam_width=width, beam_length_power=power, temperature=3.0,
            cfg_strength=2.0, cfg_rescale=0.3,
        )  # fmt: skip
        beams: list[tuple[float, tuple[int, ...], bool]] = [(0.0, (), False)]
        for _ in range(4):
            wider = [beam for beam in beams if beam[2]]
            for score, codes, _ in (beam for beam in beams if not beam[2]):
                _, guided = logits_after(tiny, one, codes)
                for token, logprob in enumerate((guided[-1] / 3.0).log_softmax(-1).tolist()):
                    ends = token == 2
                    wider.append((score + logprob, codes if ends else (*codes, token), ends))
            beams = sorted(wider, reverse=True)[:width]
        ranks = [score / (len(codes) + ends) ** power for score, codes, ends in beams]
        score, codes, ends = beams[int(np.argmax(ranks))]
        found = alone(tiny, one)
        assert (tuple(found.ar_codes().tolist()), found.finish_reason in STOPPED) == (codes, ends)
        (kept,) = (one.score for one in found.ranked if one.kept)
        assert kept == max(one.score for one in found.ranked) == pytest.approx(max(ranks), abs=1e-4)
        assert found.trace is not None
        assert found.trace["score"].sum() == pytest.approx(score, abs=1e-4)


def test_it_ends_as_soon_as_nothing_can_overtake_and_nothing_is_final_before(
    model: Valle,
) -> None:
    batch = runner(model)
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


def branching(seed: int = 1, max_frames: int = 40, **knobs: Any) -> UtteranceSpec:
    return traced(seed, max_frames, **BRANCH | knobs)


def test_where_there_is_no_room_to_branch_it_is_as_without_entropix(model: Valle) -> None:
    found = alone(model, branching(max_frames=20, entropix_branch_frames=30))
    one = branching(max_frames=20, entropix=False)
    assert torch.equal(found.ar_codes(), alone(model, one).ar_codes())
    assert found.trace is not None
    assert not found.trace["branched"].any()


@pytest.mark.slow
def test_branches_differ_from_the_fork_on_and_the_highest_rank_is_kept(model: Valle) -> None:
    for seed in range(6):
        batch = runner(model)
        utterance = batch.admit(branching(seed, **ENDING, **GUIDED))
        sequences: list[ArSequence] = []
        while batch.running:
            several = len(utterance.sequences) > 1
            sequences = list(utterance.sequences)
            batch.step()
            if several and len(utterance.sequences) == 1:
                assert_best(utterance, sequences)
    assert sequences


def assert_best(utterance: SequenceOrGroup, sequences: list[ArSequence]) -> None:
    """Assert that the utterance kept the branch that is likeliest since the fork."""
    start = next(
        frame
        for frame in range(100)
        if len({one.codes[frame] if frame < len(one.codes) else STOP for one in sequences}) > 1
    )
    assert len({tuple(one.codes[start : start + 1]) for one in sequences}) == len(sequences)
    ranks = [
        rank(one.logprobs[start:], one.codes, [], utterance.inputs.params, start=start)
        for one in sequences
    ]
    assert utterance.sequences[0] is sequences[ranks.index(max(ranks))]


def test_only_what_all_ways_have_in_common_is_final(model: Valle) -> None:
    batch = runner(model)
    utterance = batch.admit(branching(ban_tokens=(STOP,), temperature=1.5))
    finals, counts = [], []
    while batch.running:
        batch.step()
        finals.append(utterance.final)
        counts.append(len(utterance.sequences))
    apart = [frame % 7 in {0, 1, 2} for frame in range(40)]
    assert [count > 1 for count in counts] == apart
    assert finals == [
        frame - frame % 7 if several else frame + 1 for frame, several in enumerate(apart)
    ]
    assert_read_its_own(model, utterance)
    assert utterance.trace is not None
    assert utterance.trace["branched"].nonzero()[0].tolist() == [0, 7, 14, 21, 28, 35]

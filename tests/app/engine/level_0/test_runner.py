"""Many utterances together: each has the codes that it has alone, whichever join and leave."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from app.engine.job import STOPPED
from app.engine.level_0.hypothesis_group import HypothesisGroup
from app.engine.utterance import UtteranceInput
from app.settings import BUILTIN_MODEL
from models.checkpoints import load_lm
from models.int8.quantized import quantize_linears
from models.prefix_cache import VoiceKey
from models.stack.attention import attention_statistics
from models.valle import Valle
from samplers.ar.sampler import ArSampler
from samplers.ar.state import RowInput
from samplers.knobs.features import rows_needed
from samplers.knobs.params import SamplingParams
from tests.app.engine.level_0.batches import (
    BRANCH,
    EAGER,
    ENDING,
    GUIDED,
    ROOM,
    assert_as_alone,
    batch_of,
    finish,
    spoil,
)

PROMPT = torch.randint(512, (20, 8), generator=torch.Generator().manual_seed(0))
SILENT = torch.arange(512) % 50 == 0
KNOBS: Sequence[dict[str, Any]] = (
    {},
    {"temperature": 0.0},
    {"cfg_strength": 2.0},
    {"cfg_strength": 1.5, "cfg_rescale": 0.0, "mirostat_mode": 2},
    EAGER | {"temperature": 0.1},
    EAGER | {"temperature": 0.2, "cfg_strength": 2.0, "mirostat_mode": 1},
    {"entropix": True, "entropix_helv_entropy": 0.0, "entropix_low_varentropy": 1e3},
    {"entropix": True, "cfg_strength": 1.2},
    {"ras": True, "top_p": 0.9},
    {"dry_multiplier": 1.0, "dry_allowed_length": 1, "penalty_includes_prompt": True},
    {"repetition_penalty": 1.3, "sampler_order": "llama", "min_p": 0.02},
    {"prompt_as_prefix": True, "cfg_strength": 1.3},
    {"logit_bias": {512: 6.0}},
    {"best_of": 3},
    {"best_of": 2, **EAGER, "temperature": 0.3, "cfg_strength": 1.5},
    {"beam_width": 4, "cfg_strength": 2.0, "cfg_rescale": 0.3},
    {"beam_width": 2, **ENDING},
    BRANCH,
    BRANCH | GUIDED | ENDING,
)
ALL, SEVERAL = range(len(KNOBS)), range(13, len(KNOBS))
SLOTS = 100


def inputs(number: int, max_frames: int = 40) -> UtteranceInput:
    """An utterance with the knobs of that number, of one of two voices or of none; traced."""
    knobs = KNOBS[number % len(KNOBS)]
    params = SamplingParams(**{"ban_tokens": (512,)} | knobs)
    if "logit_bias" in knobs:
        params = SamplingParams(**knobs)  # it may stop
    prompted = number % 3 or params.prompt_as_prefix or params.penalty_includes_prompt
    return UtteranceInput(
        [1, *range(10, 12 + number % 7), 2],
        params,
        number,
        number % 2,
        max_frames - number % 5,
        prompt=PROMPT[: 10 + number % 3 * 5] if prompted else None,
        trace=True,
        silent=SILENT,
        voice=VoiceKey(None, str(number % 3), 0) if prompted else None,
    )


def test_all_kinds_that_join_late_pause_and_see_neighbours_leave_are_as_each_alone(
    model: Valle,
) -> None:
    batch, dropped = batch_of(model, SLOTS), list[HypothesisGroup]()
    utterances = list[HypothesisGroup]()
    for number in ALL:
        utterances.append(batch.admit(inputs(number)))
        dropped.append(batch.admit(inputs(number + 100)))
        for step in range(3):
            paused = utterances[(number + step) // 2 % len(utterances)]
            batch.pause(paused)
            count = len(paused)
            assert paused not in batch.step()
            assert len(paused) == count
            batch.resume(utterances[(number + 2 * step) // 3 % len(utterances)])
        batch.cancel(dropped[number // 2])
    for utterance in dropped:
        batch.cancel(utterance)
    for utterance in utterances:
        batch.resume(utterance)
    finish(batch)
    for utterance in utterances:
        assert_as_alone(model, utterance)
    assert any(utterance.backtracks for utterance in utterances)
    reasons = {utterance.finish_reason for utterance in utterances}
    assert "length" in reasons
    assert reasons & STOPPED
    assert batch.free_rows == SLOTS


@pytest.mark.slow
@settings(
    max_examples=12, deadline=None, phases=(Phase.explicit, Phase.reuse, Phase.generate),
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)  # fmt: skip
@given(st.data())
def test_any_schedule_gives_each_what_it_has_alone(model: Valle, data: st.DataObject) -> None:
    batch, ever = batch_of(model, slots=8), list[HypothesisGroup]()
    for _ in range(data.draw(st.integers(5, 40))):
        deed = data.draw(st.sampled_from(["admit", "admit", "pause", "resume", "cancel", "step"]))
        if deed == "admit":
            one = inputs(data.draw(st.integers(0, 10**6)), data.draw(st.sampled_from([10, 25])))
            if rows_needed(one.params) <= batch.free_rows:
                ever.append(batch.admit(one))
        elif ever and deed != "step":
            getattr(batch, deed)(ever[data.draw(st.integers(0, len(ever) - 1))])
        batch.step()
    for utterance in ever:
        batch.resume(utterance)
    finish(batch)
    assert batch.free_rows == 8
    for utterance in ever:
        whole = utterance.finish_reason != "cancelled"
        if whole or type(utterance) is HypothesisGroup:  # of several, none is kept before the end
            assert_as_alone(model, utterance, whole=whole)


def test_what_is_no_number_ends_its_utterance_and_no_other(model: Valle) -> None:
    batch = batch_of(model)
    sound = batch.admit(inputs(1))
    plain, guided, *_ = broken = [
        batch.admit(inputs(number))
        for number in (0, 2, *SEVERAL)
        if not inputs(number).params.logit_bias  # which may end it first
    ]
    for _ in range(2):
        batch.step()
    for utterance in broken:
        spoil(batch, utterance.hypotheses[-1].conditions[-1].slot)
    batch.step()
    for utterance in broken:
        assert utterance.finish_reason == "error"
        assert "no numbers" in str(utterance.error)
        assert utterance.final == len(utterance)
    assert len(plain) == len(guided) == 2
    assert batch.free_rows == 29
    finish(batch)
    assert_as_alone(model, sound)


def test_a_slot_that_held_what_was_no_number_is_as_good_as_new(model: Valle) -> None:
    batch = batch_of(model, slots=1)
    broken = batch.admit(inputs(0))
    batch.step()
    spoil(batch, 0)
    batch.step()
    assert broken.finish_reason == "error"
    fresh = batch.admit(inputs(1))
    finish(batch)
    assert_as_alone(model, fresh)


def test_rows_are_taken_at_admission_and_freed_at_once(model: Valle) -> None:
    batch = batch_of(model, slots=3)
    plain, guided = batch.admit(inputs(0)), batch.admit(inputs(2))
    rows = [rows_needed(group.inputs.params) for group in (plain, guided)]
    assert (batch.free_rows, rows) == (0, [1, 2])
    with pytest.raises(ValueError, match="slots"):
        batch.admit(inputs(1))
    batch.step()
    batch.cancel(guided)
    batch.cancel(guided)
    assert (batch.free_rows, batch.running, guided.finish_reason) == (2, (plain,), "cancelled")
    batch.pause(plain)
    batch.cancel(plain)
    batch.resume(plain)
    assert (batch.free_rows, batch.running, batch.step()) == (3, (), ())


@pytest.mark.parametrize("paused", [False, True])
def test_hypotheses_may_be_dropped_before_they_end(model: Valle, *, paused: bool) -> None:
    batch = batch_of(model)
    for number in SEVERAL:
        utterance = batch.admit(inputs(number))
        batch.step()
        if paused:
            batch.pause(utterance)
        batch.cancel(utterance)
        assert (batch.free_rows, utterance.finish_reason) == (30, "cancelled")
        assert (batch.running, batch.step()) == ((), ())


def test_an_utterance_for_which_a_slot_is_too_short_changes_nothing(model: Valle) -> None:
    batch = batch_of(model, slots=2)
    with pytest.raises(ValueError, match="positions"):
        batch.admit(inputs(2, ROOM))
    assert (batch.free_rows, batch.running) == (2, ())


@pytest.mark.parametrize("begun", [0, 1])
def test_an_admission_that_fails_halfway_gives_its_slots_back(
    model: Valle, begun: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    batch = batch_of(model, slots=4)
    right, joined = ArSampler.join, list[Sequence[int]]()

    def join(sampler: ArSampler, slots: Sequence[int], row: RowInput) -> None:
        if len(joined) == begun:
            raise MemoryError
        joined.append(slots)
        right(sampler, slots, row)

    monkeypatch.setattr(ArSampler, "join", join)
    with pytest.raises(MemoryError):
        batch.admit(inputs(14))
    monkeypatch.undo()
    assert (len(joined), batch.free_rows, batch.running, batch.step()) == (begun, 4, (), ())
    utterance = batch.admit(inputs(14))
    finish(batch)
    assert_as_alone(model, utterance)


def test_the_model_is_asked_how_it_attends_only_for_those_who_want_it(
    model: Valle, monkeypatch
) -> None:
    batch = batch_of(model)
    curious, plain = batch.admit(inputs(7)), batch.admit(inputs(0))
    asked = list[int]()

    def note(queries: Sequence[torch.Tensor], keys: Sequence[torch.Tensor]) -> Any:
        asked.append(len(queries))
        return attention_statistics(queries, keys)

    monkeypatch.setattr("models.stack.transformer.attention_statistics", note)
    batch.step()
    batch.step()
    assert asked == [1]
    batch.cancel(curious)
    batch.step()
    assert asked == [1]
    assert plain.trace is not None
    assert np.isnan(plain.trace["attention_strength"]).all()


@pytest.mark.parametrize("share", [0.35, 1.0])
def test_all_frames_are_final_at_once_unless_they_may_be_rewound(
    model: Valle, share: float
) -> None:
    block, window = model.config.block_frames, 20
    knobs = {"ban_tokens": (512,), "backtrack": True, "backtrack_window": window}
    knobs["backtrack_share"] = share
    watched = replace(inputs(0, 80), params=SamplingParams(**knobs), max_frames=80)
    batch = batch_of(model)
    free, held = batch.admit(inputs(0, 80)), batch.admit(watched)
    while batch.running:
        batch.step()
        assert free.final == len(free)
        if held.finish_reason is None and not held.backtracks:
            count = len(held)
            held_back = min(window, int(share * count)) if count >= block else window
            assert held.final == max(block if count >= block else 0, count - held_back)
    assert held.final == len(held)


@pytest.mark.weights
@pytest.mark.parametrize("weights", ["float32", "int8"])
def test_the_builtin_model_gives_each_the_codes_that_it_has_alone(weights: str) -> None:
    model = load_lm(BUILTIN_MODEL)
    if weights == "int8":
        quantize_linears(model)
    frames, stop = model.config.max_prompt_frames, model.config.stop_token
    prompt = torch.randint(1024, (min(20, frames), 8), generator=torch.Generator().manual_seed(0))
    knobs: list[dict[str, Any]] = [{}, {"temperature": 0.7, "top_p": 0.9}, {"entropix": True}]
    if model.config.has_null_condition:
        knobs.append({"cfg_strength": 2.0})
    pieces = [
        UtteranceInput(
            [1, *range(10, 15 + number), 2],
            SamplingParams(**{"ban_tokens": (stop,)} | one),
            number,
            0,
            25,
            prompt=prompt if frames and number % 2 else None,
            trace=True,
        )
        for number, one in enumerate(knobs)
    ]
    batch = batch_of(model)
    utterances = []
    for one in pieces:
        utterances.append(batch.admit(one))
        batch.step()
    finish(batch)
    for utterance in utterances:
        assert_as_alone(model, utterance)

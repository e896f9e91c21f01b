"""Utterances in one batch: their rows, their traces, and what is no number."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from app.engine.ar.eager_runner import EagerRunner
from app.engine.ar.stage import ArBatch
from app.engine.utterance import UtteranceSpec
from models.int8.cache import Int8Cache
from models.stack.attention import attention_statistics
from models.stack.cache import KVCache
from models.valle import Valle
from samplers.ar.sampler import ArSampler
from samplers.ar.state import HostColumn, RowInput
from samplers.knobs.features import rows_needed
from samplers.knobs.params import SamplingParams
from tests.app.engine.ar.requests import (
    KINDS,
    ROOM,
    alone,
    assert_as_alone,
    assert_read_its_own,
    finish,
    request,
    runner,
)


def unending(model: Valle, number: int, max_frames: int = 40) -> UtteranceSpec:
    """A request that does not sample the stop; traced."""
    one = request(model, number, kept=None, max_frames=max_frames, trace=True)
    return replace(one, params=one.params.model_copy(update={"ban_tokens": (512,)}))


@pytest.mark.parametrize("number", range(KINDS))
def test_a_code_that_is_kept_was_drawn_from_what_the_model_says_of_those_before_it(
    model, number
) -> None:
    group = alone(model, request(model, number, trace=True))
    assert_read_its_own(model, group)
    assert group.final == len(group)


@pytest.mark.parametrize("number", range(KINDS))
def test_a_trace_changes_no_code(model, number) -> None:
    traced, other = (
        alone(model, request(model, number, trace=trace)).ar_codes() for trace in (True, False)
    )
    assert traced.tolist() == other.tolist()


def test_one_function_samples_plain_rows_in_every_batch_and_no_others(model, monkeypatch) -> None:
    batch = runner(model)
    eager = batch._runner
    assert isinstance(eager, EagerRunner)
    run, table, rows = eager._sample, eager.table, list[set[int]]()

    def watched(*arguments: Any) -> None:
        rows.append({*np.flatnonzero(table.host[:, HostColumn.ACTIVE])})
        run(*arguments)

    monkeypatch.setattr(eager, "_sample", watched)
    begun = [
        batch.admit(replace(unending(model, number), trace=trace, params=SamplingParams(**knobs)))
        for number, (trace, knobs) in enumerate([
            (False, {"top_p": 0.9, "cfg_strength": 2.0, "ban_tokens": (512,)}),
            (False, {"typical_p": 0.9, "ban_tokens": (512,)}),
            (True, {"top_p": 0.9, "ban_tokens": (512,)}),
        ])
    ]
    plain = begun[0].sequences[0].slot
    for only in (begun, begun[:1], begun[1:], begun[:2]):
        batch.step(only)
    assert rows == [{plain}] * 3
    assert [len(one) for one in begun] == [3, 3, 2]


def spoil(batch: ArBatch, slot: int) -> None:
    """Leave no numbers in what a slot of the first layer holds."""
    cache = batch._runner.cache
    if isinstance(cache, Int8Cache):
        cache.layers[0].key_scales[slot] = cache.layers[0].value_scales[slot] = np.nan
    elif isinstance(cache, KVCache):
        cache.keys[0][slot] = cache.values[0][slot] = torch.nan


def test_what_is_no_number_ends_its_utterance_and_no_other_not_even_the_next_there(model) -> None:
    batch = runner(model, slots=20)
    sound = batch.admit(unending(model, 1))
    broken = [batch.admit(unending(model, number)) for number in (0, 10, 18, 19, 23, 25)]
    for _ in range(2):
        batch.step()
    spoilt = [group.sequences[-1].conditions[-1].slot for group in broken]
    for slot in spoilt:
        spoil(batch, slot)
    batch.step()
    for group in broken:
        assert group.finish_reason == "error"
        assert "no numbers" in str(group.error)
        assert group.final == len(group)
    assert len(broken[0]) == len(broken[1]) == 2
    assert batch.free_rows == 19
    fresh = [batch.admit(unending(model, 2)) for _ in range(19)]
    finish(batch)
    assert_as_alone(model, sound, *fresh[:1])
    assert len({tuple(group.ar_codes().tolist()) for group in fresh}) == 1


def test_rows_are_taken_at_admission_and_freed_at_once(model) -> None:
    batch = runner(model, slots=3)
    plain, guided = (batch.admit(unending(model, number)) for number in (0, 10))
    rows = [rows_needed(group.inputs.params, 1.0) for group in (plain, guided)]
    assert (batch.free_rows, rows) == (0, [1, 2])
    with pytest.raises(ValueError, match="slots"):
        batch.admit(unending(model, 1))
    batch.step()
    for _ in range(2):
        batch.cancel(guided)
    assert (batch.free_rows, batch.running, guided.finish_reason) == (2, (plain,), "cancelled")
    with pytest.raises(ValueError, match="positions"):
        batch.admit(unending(model, 0, ROOM))
    batch.step([])
    batch.cancel(plain)
    assert (batch.free_rows, batch.running, batch.step()) == (3, (), ())


@pytest.mark.parametrize("begun", [0, 1])
def test_an_admission_that_fails_halfway_gives_its_slots_back(model, begun, monkeypatch) -> None:
    batch = runner(model, slots=4)
    right, joined = ArSampler.join, list[Sequence[int]]()

    def join(sampler: ArSampler, slots: Sequence[int], row: RowInput) -> None:
        if len(joined) == begun:
            raise MemoryError
        joined.append(slots)
        right(sampler, slots, row)

    monkeypatch.setattr(ArSampler, "join", join)
    with pytest.raises(MemoryError):
        batch.admit(unending(model, 19))
    monkeypatch.undo()
    assert (len(joined), batch.free_rows, batch.running, batch.step()) == (begun, 4, (), ())
    group = batch.admit(unending(model, 19))
    finish(batch)
    assert_as_alone(model, group)


def test_the_model_is_asked_how_it_attends_only_for_those_who_want_it(model, monkeypatch) -> None:
    batch = runner(model)
    curious, plain = batch.admit(unending(model, 16)), batch.admit(unending(model, 0))
    asked = list[int]()

    def note(queries: torch.Tensor, *rest: torch.Tensor) -> torch.Tensor:
        asked.append(len(queries))
        return attention_statistics(queries, *rest)

    monkeypatch.setattr("app.engine.ar.model_runner.attention_statistics", note)
    batch.step()
    batch.step()
    assert asked == [1]
    batch.cancel(curious)
    finish(batch, plain)
    assert asked == [1]
    assert plain.trace is not None
    assert np.isnan(plain.trace["attention_strength"]).all()

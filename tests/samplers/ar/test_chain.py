"""A chain that lies in a table draws what the processors of its rows do."""

import itertools

import pytest
import torch

from samplers.ar.chain import (
    FULL,
    KINDS,
    LIGHT,
    PLAIN,
    ROOM,
    Chain,
    ChainKind,
    at_least,
    kind_of,
    largest,
    why_eager,
)
from samplers.knobs.params import SamplingParams
from samplers.knobs.presets import PRESETS
from tests.samplers.ar.test_sampler import STOP, VOCAB

CPU = torch.device("cpu")


def chain(kind: ChainKind, rows: int) -> Chain:
    with torch.inference_mode():
        return Chain(kind, rows, vocab_size=VOCAB, stop_token=STOP, device=CPU)


@torch.inference_mode()
@pytest.mark.parametrize("kind", KINDS)
def test_rows_written_to_the_table_are_those_of_every_chain_that_lies_in_it(
    kind: ChainKind,
) -> None:
    large, small = chain(kind, 4), chain(kind, 2)
    table = large.table()
    large.lie_in(table)
    small.lie_in(table)
    params = SamplingParams(temperature=0.25, logit_bias={} if kind is PLAIN else {3: 2.5})
    record = large.record(params, None)
    table[1] = record

    for one in (large, small):
        found = one.table()
        assert torch.equal(found, table[: len(found)])
        assert torch.equal(found[1], record)
        assert not torch.equal(found[0], record)


def test_presets_with_the_canonical_order_are_recorded_and_most_are_plain() -> None:
    resolved = {name: SamplingParams(**knobs) for name, knobs in PRESETS.items()}
    recorded = {name for name, params in resolved.items() if why_eager(params) is None}

    assert recorded == {"default", "greedy", "stable", "expressive", "builtin"}
    kinds = {name: kind_of(resolved[name]) for name in recorded}
    assert kinds.pop("stable") is LIGHT
    assert set(kinds.values()) == {PLAIN}


def test_a_larger_kind_draws_what_a_smaller_one_does() -> None:
    for small, large in itertools.pairwise(KINDS):
        assert small.features < large.features
        assert small.lookback < large.lookback
        assert largest([small, large, small]) is large
    assert at_least(LIGHT) == (LIGHT, FULL)


@pytest.mark.parametrize("kind", [PLAIN, LIGHT])
def test_a_chain_has_no_processor_of_a_feature_that_its_kind_lacks(kind: ChainKind) -> None:
    (group,) = chain(kind, 1).pipeline._groups
    for processor in (*group.penalties, *group.filters):
        assert not kind.features.isdisjoint(processor.features)


@torch.inference_mode()
def test_a_row_that_needs_larger_tables_is_refused() -> None:
    banned = [{"codes": (code,)} for code in range(ROOM.sequences + 1)]
    params = SamplingParams.model_validate({"ban_sequences": banned})

    assert why_eager(params)
    with pytest.raises(ValueError, match="form"):
        chain(FULL, 1).record(params, None)

"""A chain that lies in a table draws what the processors of its rows do."""

import pytest
import torch

from samplers.ar.chain import FULL, LIGHT, ROOM, Chain, ChainKind, kind_of, why_eager
from samplers.knobs.params import SamplingParams
from samplers.knobs.presets import PRESETS
from tests.samplers.ar.test_sampler import STOP, VOCAB

CPU = torch.device("cpu")


def chain(kind: ChainKind, rows: int) -> Chain:
    with torch.inference_mode():
        return Chain(kind, rows, vocab_size=VOCAB, stop_token=STOP, device=CPU)


@torch.inference_mode()
@pytest.mark.parametrize("kind", [LIGHT, FULL])
def test_rows_written_to_the_table_are_those_of_every_chain_that_lies_in_it(
    kind: ChainKind,
) -> None:
    large, small = chain(kind, 4), chain(kind, 2)
    table = large.table()
    large.lie_in(table)
    small.lie_in(table)
    record = large.record(SamplingParams(temperature=0.25, logit_bias={3: 2.5}), None)
    table[1] = record

    for one in (large, small):
        found = one.table()
        assert torch.equal(found, table[: len(found)])
        assert torch.equal(found[1], record)
        assert not torch.equal(found[0], record)


def test_presets_with_the_canonical_order_are_recorded_and_most_are_light() -> None:
    resolved = {name: SamplingParams(**knobs) for name, knobs in PRESETS.items()}
    recorded = {name for name, params in resolved.items() if why_eager(params) is None}

    assert recorded == {"default", "greedy", "stable", "expressive", "builtin"}
    assert all(kind_of(resolved[name]) is LIGHT for name in recorded)


@torch.inference_mode()
def test_a_row_that_needs_larger_tables_is_refused() -> None:
    banned = [{"codes": (code,)} for code in range(ROOM.sequences + 1)]
    params = SamplingParams.model_validate({"ban_sequences": banned})

    assert why_eager(params)
    with pytest.raises(ValueError, match="form"):
        chain(FULL, 1).record(params, None)

"""The numbers of a plain row say what its params do."""

import pytest
import torch

from samplers import plain
from samplers.ar.sampler import ArSampler
from samplers.ar.state import HostColumn, RowInput, SlotTable
from samplers.knobs.params import SamplingParams
from samplers.plain import is_plain, plain_row
from tests.samplers.plain_rows import CODES, KNOBS, PENALISED, ROWS, STOP, logits_of, sampled


@pytest.mark.parametrize("seed", range(8))
def test_the_numbers_of_a_row_say_what_its_params_do(seed: int) -> None:
    knobs = [*KNOBS, *PENALISED]
    params = [SamplingParams(**knobs[(2 * seed + row) % len(knobs)]) for row in range(ROWS)]
    assert all(map(is_plain, params))
    longest = {"repetition_penalty": 1.2, "repetition_penalty_window": 128}
    assert is_plain(SamplingParams(**longest))
    assert not is_plain(SamplingParams(**longest | {"repetition_penalty_window": 129}))
    table = torch.stack([plain_row(one, CODES) for one in params])
    sampler = ArSampler(SlotTable(ROWS, frames=40, prompt=6, vocab_size=CODES), stop_token=STOP)
    packed = SlotTable(ROWS, frames=40, prompt=6, vocab_size=CODES)
    for slot, one in enumerate(params):
        sampler.join([slot], RowInput(one, seed, 40, slot))
    packed.host[:] = sampler.table.host
    packed.host[:, HostColumn.PARTNER] = range(ROWS)
    for step in range(30):
        logits = logits_of(seed + 100 * step)
        found = sampled(plain.sample, logits, packed, table)[:, 0]
        assert found.tolist() == sampler.step(logits[:ROWS]).tolist()
    assert torch.equal(packed.lengths, sampler.table.lengths)

"""The compiled function samples of plain rows what the sampler samples, on the same table."""

import math
from pathlib import Path
from typing import Any

import numba
import numpy as np
import pytest
import torch

from samplers import compiled
from samplers.ar.sampler import ArSampler
from samplers.ar.state import HostColumn, RowInput, SlotTable
from samplers.knobs.params import SamplingParams
from samplers.ops.sample import stream_key, uniform
from samplers.plain import RESULTS, plain_row
from tests.gpu.faults import changed
from tests.samplers.plain_rows import (
    CPU,
    GREEDY,
    KNOBS,
    PENALISED,
    assert_sampled_as_by_the_sampler,
)

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")  # NumPy's, of NaN and wrapping

SIZE = 1025
FAULTS = [
    ("_clean(x[code]) + bias[code]", "_clean(x[code])"),
    ("length < numbers[row, _AVOID_UNTIL]", "length <= numbers[row, _AVOID_UNTIL]"),
    ("or length < numbers[row, _UNGUIDED_UNTIL]", ""),
    ("rows + row if", "rows + row - 1 if"),
    ("or knobs[_ONCE] == 0", ""),
    ("counts[code] = 0\n", "counts[code] += 0\n"),
    ("x[code] > 0 or mode == _RAW", "mode == _RAW"),
    ("if mode == _ADDITIVE:", "if mode < 0:"),
    ("- presence", "- _f32(counts[code]) * presence"),
    ("length < record[_LEAST]", "length <= record[_LEAST]"),
    ("length >= numbers[row, _LIMIT]", "length > numbers[row, _LIMIT]"),
    ("numbers[row, _PROMPTED] + length", "length"),
    ("rescale * ratio", "rescale"),
    ("if worth >= least:", "if worth > least:"),
    ("if knobs[_KEEP] > 1:", "if knobs[_KEEP] < 0:"),
    ("_u64(attempt) * _BY_ATTEMPT", "_u64(attempt)"),
]
"""What of the source becomes what."""


@pytest.mark.parametrize("seed", range(32))
@pytest.mark.parametrize("knobs", [KNOBS, PENALISED, GREEDY], ids=["usual", "penalised", "greedy"])
def test_rows_are_sampled_as_by_the_sampler(seed: int, knobs: Any) -> None:
    assert_sampled_as_by_the_sampler(compiled.sample, knobs, [seed], CPU)


@pytest.mark.slow
@pytest.mark.parametrize(("right", "wrong"), FAULTS)
def test_a_mistake_is_seen(
    right: str, wrong: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(numba.config, "DISABLE_JIT", True)  # compiling takes seconds
    module = changed(compiled, right, wrong, tmp_path / "faulty.py")

    def check() -> None:
        for knobs in (KNOBS, PENALISED, GREEDY):
            assert_sampled_as_by_the_sampler(module.sample, knobs, range(64), CPU)

    with pytest.raises(AssertionError):
        check()


def test_the_noise_has_the_same_bits() -> None:
    for number in range(20):
        key, length, attempt = stream_key(number, number, 0), 7 * number, number % 3  # type: ignore[arg-type]
        place = compiled.place_of(key, length, attempt)
        found = [compiled.uniform(np.uint64(place), code) for code in range(1024)]
        expected = uniform(torch.tensor([[key]]), 1024, step=length, attempt=attempt)
        assert torch.equal(torch.tensor(found), expected[0])


@pytest.mark.parametrize("nats", [0.0, -1e-3, -0.5, -1.0, -17.25, -88.0, -102.9])
def test_a_weight_is_a_power_of_e(nats: float) -> None:
    weights = np.empty(2)
    compiled._weigh(np.array([0.0, nats], np.float32), np.float32(0.0), weights)
    assert weights.tolist() == pytest.approx([1.0, math.exp(np.float32(nats))], rel=1e-9)


@pytest.mark.parametrize("streams", [1, 5])
def test_the_preset_of_the_built_in_voice_gives_the_codes_of_the_sampler(streams: int) -> None:
    params = SamplingParams(temperature=0.7, top_p=0.9, cfg_strength=2.0)
    chance = torch.Generator().manual_seed(streams)
    one, other = (SlotTable(2 * streams, frames=400, vocab_size=SIZE) for _ in range(2))
    sampler = ArSampler(one, stop_token=SIZE - 1)
    knobs = torch.stack([plain_row(params, SIZE)] * 2 * streams)
    for stream in range(streams):
        sampler.join([2 * stream], RowInput(params, stream, 400))
    other.host[:] = one.host
    other.host[::2, HostColumn.PARTNER] += 1
    results = torch.zeros(2 * streams, RESULTS, dtype=torch.float64)
    for _ in range(300):
        logits = 4 * torch.randn(2 * streams, SIZE, generator=chance)
        logits[:, SIZE - 1] = -30.0
        compiled.sample(
            logits, other.numbers, other.avoid, knobs, other.codes, other.lengths, other.stopped,
            results, SIZE - 1,
        )  # fmt: skip
        expected = sampler.advance(logits[::2], null=logits[1::2]).codes
        assert results[::2, 0].tolist() == expected.tolist()

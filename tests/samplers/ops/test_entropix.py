"""Entropix: metrics, states and what they do, against golden vectors."""

import math
from pathlib import Path

import pytest
import torch
from torch import Tensor

from models.stack.attention import measure_attention
from samplers.knobs.params import SamplingParams
from samplers.ops import entropix
from samplers.ops.entropix import KNOBS, State
from samplers.processors.entropix import settings
from tests.samplers.reference.harness import attention, load, make_batch, stack

DEFAULTS = settings(make_batch([SamplingParams()], 64))


def test_golden_entropy_and_varentropy_are_met_by_every_row_of_one_batch(golden: Path) -> None:
    cases = load(golden, "entropix_metrics")
    entropy, varentropy = entropix.moments(stack([case["logits"] for case in cases]))
    for row, case in enumerate(cases):
        expected = case["expected"]
        assert entropy[row].item() == pytest.approx(expected["entropy_bits"], rel=1e-4, abs=1e-4)
        assert varentropy[row].item() == pytest.approx(
            expected["varentropy_bits2"], rel=1e-4, abs=1e-4
        )


def test_golden_states_and_the_knobs_that_they_move_are_met_by_every_row_of_one_batch(
    golden: Path,
) -> None:
    cases = load(golden, "entropix_state")
    entropy, varentropy = entropix.moments(stack([case["logits"] for case in cases]))
    states = entropix.state(entropy, varentropy, DEFAULTS)
    assert [State(s).name for s in states[:, 0].tolist()] == [c["expected"]["state"] for c in cases]
    heads = attention([
        measure_attention(scores, torch.tensor(scores.shape[2:]))[:, 0].tolist()
        for case in cases
        for scores in [torch.tensor([case["attention_scores_last_layer_last_query"]])]
    ])
    own = torch.tensor([[case["params"][name] for name in KNOBS] for case in cases])
    found = entropix.adjust(states, entropy, varentropy, heads, own, DEFAULTS)
    for row, case in enumerate(cases):
        expected = case["expected"]
        temperature = expected.get("temperature", expected.get("resample_temperature", 0.0))
        moved = dict(zip(KNOBS, found[row].tolist(), strict=True))
        assert moved["temperature"] == pytest.approx(temperature, rel=1e-4)
        for name in ("top_k", "top_p", "min_p"):
            value = expected.get(name, case["params"][name])
            assert moved[name] == pytest.approx(value, rel=1e-4), case["id"]


def _state(entropy: float, varentropy: float, **thresholds: float) -> State:
    params = SamplingParams(**{f"entropix_{name}": value for name, value in thresholds.items()})
    columns = settings(make_batch([params], 64))
    found = entropix.state(torch.tensor([[entropy]]), torch.tensor([[varentropy]]), columns)
    return State(int(found))


def test_the_entropy_thresholds_of_the_two_high_states_are_in_their_first_places() -> None:
    assert _state(4.0, 0.05) is State.HELV
    assert _state(4.0, 6.0) is State.LEHV
    assert _state(5.0, 6.0) is State.ADAPTIVE  # neither below nor above
    assert _state(5.1, 6.0) is State.HEHV


def test_the_first_state_that_fits_wins() -> None:
    assert _state(1.0, 1.0, low_entropy=2, helv_entropy=0, low_varentropy=2) is State.LELV
    overlapping = {"low_varentropy": 9, "helv_entropy": 0, "high_varentropy": 0}
    assert _state(1.0, 1.0, **overlapping) is State.HELV
    assert _state(6.0, 6.0, lehv_entropy=7) is State.LEHV


HUGE = [0.0, 1.0, 1e30, math.inf, math.nan]


@pytest.mark.parametrize("number", HUGE)
@pytest.mark.parametrize("state", list(State))
def test_whatever_the_attention_says_the_knobs_are_numbers_in_their_bounds(
    number: float, state: State
) -> None:
    own = torch.tensor([[1e38, 1.0, 0.0, 64], [1.0, 1.0, 0.0, 64]])
    bits = torch.full((2, 1), 6.0)
    states = torch.full((2, 1), int(state))
    wide = settings(make_batch([SamplingParams()] * 2, 64))
    heads = attention([[number] * 4] * 2)
    moved = entropix.adjust(states, bits, bits, heads, own, wide)
    assert moved.isfinite().all()
    assert (moved >= torch.tensor([0, 0, 0, 1])).all()


def test_where_a_floor_is_above_its_ceiling_the_ceiling_holds() -> None:
    params = SamplingParams(
        entropix_adaptive_top_k_floor=50, entropix_adaptive_top_k_ceiling=7,
        entropix_adaptive_min_p_floor=0.4, entropix_adaptive_min_p_ceiling=0.2,
    )  # fmt: skip
    moved = _adaptive(params)
    assert moved["top_k"] == 7
    assert moved["min_p"] == pytest.approx(0.2)


def test_a_negative_weight_lowers_a_temperature() -> None:
    moved = _adaptive(SamplingParams(entropix_adaptive_entropy=-0.2))
    assert moved["temperature"] == pytest.approx(0.6)  # 1 - 0.2 (H + V)


def _adaptive(params: SamplingParams) -> dict[str, float]:
    one: Tensor = torch.ones(1, 1)
    columns = settings(make_batch([params], 64))
    own = torch.tensor([[1.0, 0.9, 0.05, 20]])
    states = torch.tensor([[int(State.ADAPTIVE)]])
    found = entropix.adjust(states, one, one, attention([[0.0] * 4]), own, columns)
    return dict(zip(KNOBS, found[0].tolist(), strict=True))

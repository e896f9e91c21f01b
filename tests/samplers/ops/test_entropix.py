"""Entropix: metrics, states and what they do, against golden vectors."""

import math
from dataclasses import astuple, fields
from pathlib import Path

import pytest
import torch
from torch import Tensor

from models.stack.attention import measure
from samplers.knobs.params import SamplingParams
from samplers.ops import entropix
from samplers.ops.entropix import SamplingTensors, State
from samplers.processors.entropix import settings
from tests.samplers.reference.harness import attention, load, make_batch, stack

DEFAULTS = settings(make_batch([SamplingParams()], 64))


def test_golden_entropy_and_varentropy_in_one_batch(golden: Path) -> None:
    cases = load(golden, "entropix_metrics")
    entropy, varentropy = entropix.moments(stack([case["logits"] for case in cases]))
    for row, case in enumerate(cases):
        expected = case["expected"]
        assert entropy[row].item() == pytest.approx(expected["entropy_bits"], rel=1e-4, abs=1e-4)
        assert varentropy[row].item() == pytest.approx(
            expected["varentropy_bits2"], rel=1e-4, abs=1e-4
        )


def test_golden_states_and_the_knobs_that_they_move_in_one_batch(golden: Path) -> None:
    cases = load(golden, "entropix_state")
    entropy, varentropy = entropix.moments(stack([case["logits"] for case in cases]))
    states = entropix.state(entropy, varentropy, DEFAULTS)
    assert [State(s).name for s in states[:, 0].tolist()] == [c["expected"]["state"] for c in cases]
    heads = attention([
        measure(scores, torch.tensor(scores.shape[2:]))[:, 0].tolist()
        for case in cases
        for scores in [torch.tensor([case["attention_scores_last_layer_last_query"]])]
    ])
    own = SamplingTensors(
        *(
            torch.tensor([[case["params"][field.name]] for case in cases])
            for field in fields(SamplingTensors)
        )
    )
    moved = entropix.adjust(states, entropy, varentropy, heads, own, DEFAULTS)
    for row, case in enumerate(cases):
        expected = case["expected"]
        temperature = expected.get("temperature", expected.get("resample_temperature", 0.0))
        assert moved.temperature[row].item() == pytest.approx(temperature, rel=1e-4)
        for name in ("top_k", "top_p", "min_p"):
            value = expected.get(name, case["params"][name])
            assert getattr(moved, name)[row].item() == pytest.approx(value, rel=1e-4), case["id"]


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
    own = SamplingTensors(
        torch.tensor([[1e38], [1.0]]), torch.ones(2, 1), torch.full((2, 1), 64), torch.zeros(2, 1)
    )
    bits = torch.full((2, 1), 6.0)
    states = torch.full((2, 1), int(state))
    wide = settings(make_batch([SamplingParams()] * 2, 64))
    heads = attention([[number] * 4] * 2)
    moved = entropix.adjust(states, bits, bits, heads, own, wide)
    assert all(knob.isfinite().all() for knob in astuple(moved))
    assert (moved.temperature >= 0).all()
    assert (moved.top_k >= 1).all()
    assert ((moved.top_p >= 0) & (moved.min_p >= 0)).all()


def test_where_a_floor_is_above_its_ceiling_the_ceiling_holds() -> None:
    params = SamplingParams(
        entropix_adaptive_top_k_floor=50, entropix_adaptive_top_k_ceiling=7,
        entropix_adaptive_min_p_floor=0.4, entropix_adaptive_min_p_ceiling=0.2,
    )  # fmt: skip
    moved = _adaptive(params)
    assert moved.top_k.item() == 7
    assert moved.min_p.item() == pytest.approx(0.2)


def test_a_negative_weight_lowers_a_temperature() -> None:
    moved = _adaptive(SamplingParams(entropix_adaptive_entropy=-0.2))
    assert moved.temperature.item() == pytest.approx(0.6)  # 1 - 0.2 (H + V)


def _adaptive(params: SamplingParams) -> SamplingTensors:
    one: Tensor = torch.ones(1, 1)
    columns = settings(make_batch([params], 64))
    own = SamplingTensors(one, one * 0.9, torch.tensor([[20]]), one * 0.05)
    states = torch.tensor([[int(State.ADAPTIVE)]])
    return entropix.adjust(states, one, one, attention([[0.0] * 4]), own, columns)

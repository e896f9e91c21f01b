"""Entropix: metrics, states and what they do, against golden vectors."""

from pathlib import Path

import pytest
import torch

from samplers import entropix
from samplers.entropix import State
from tests.samplers.harness import load, stack


def _scores(case: dict[str, object]) -> torch.Tensor:
    return torch.tensor(case["attention_scores_last_layer_last_query"])[None]


def test_golden_entropy_and_varentropy_in_one_batch(golden: Path) -> None:
    cases = load(golden, "entropix_metrics")
    entropy, varentropy = entropix.moments(stack([case["logits"] for case in cases]))
    for row, case in enumerate(cases):
        expected = case["expected"]
        assert entropy[row].item() == pytest.approx(expected["entropy_bits"], rel=1e-4, abs=1e-4)
        assert varentropy[row].item() == pytest.approx(
            expected["varentropy_bits2"], rel=1e-4, abs=1e-4
        )


def test_golden_attention_does_not_see_keys_that_do_not_exist(golden: Path) -> None:
    for case in load(golden, "entropix_metrics"):
        scores = _scores(dict(case))
        keys = scores.shape[-1]
        padded = torch.cat((scores, torch.full((*scores.shape[:2], 3), 99.0)), -1)
        valid = (torch.arange(keys + 3) < keys)[None]
        for heads in (entropix.attention(scores), entropix.attention(padded, valid)):
            found = [heads.entropy, heads.varentropy, heads.agreement, heads.strength]
            names = (
                "attn_entropy_bits_mean", "attn_varentropy_population", "agreement",
                "interaction_strength",
            )  # fmt: skip
            for value, name in zip(found, names, strict=True):
                assert value.item() == pytest.approx(case["expected"][name], rel=1e-4, abs=1e-4)


def test_golden_states_and_the_knobs_that_they_move_in_one_batch(golden: Path) -> None:
    cases = load(golden, "entropix_state")
    entropy, varentropy = entropix.moments(stack([case["logits"] for case in cases]))
    states = entropix.state(entropy, varentropy, entropix.Thresholds())
    assert [State(s).name for s in states[:, 0].tolist()] == [c["expected"]["state"] for c in cases]
    heads = [entropix.attention(_scores(dict(case))) for case in cases]
    joined = entropix.Attention(
        *(
            torch.cat([getattr(head, name) for head in heads])
            for name in entropix.Attention.__dataclass_fields__
        )
    )
    own = entropix.Knobs(
        *(
            torch.tensor([[case["params"][name]] for case in cases])
            for name in entropix.Knobs.__dataclass_fields__
        )
    )
    moved = entropix.adjust(states, entropy, varentropy, joined, own)
    for row, case in enumerate(cases):
        expected = case["expected"]
        temperature = expected.get("temperature", expected.get("resample_temperature", 0.0))
        assert moved.temperature[row].item() == pytest.approx(temperature, rel=1e-4)
        for name in ("top_k", "top_p", "min_p"):
            value = expected.get(name, case["params"][name])
            assert getattr(moved, name)[row].item() == pytest.approx(value, rel=1e-4), case["id"]

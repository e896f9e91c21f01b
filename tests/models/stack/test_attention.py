"""Attention statistics: the golden numbers.

That they are those of the keys of a slot is said by `test_cached_passes`; that looking, and who
else is looked at, changes no bit, by `test_runner` of level 0; and of padded rows, as over pages,
by `test_paged_batch`.
"""

import json
from pathlib import Path

import pytest
import torch

from models.stack.attention import attention_statistics, measure_attention

GOLDEN = ("attn_entropy_bits_mean", "attn_varentropy_population", "agreement")


def test_statistics_of_attention_are_those_of_the_golden_data(golden: Path) -> None:
    cases = json.loads((golden / "samplers" / "entropix_metrics.dev.json").read_text())["cases"]
    for case in cases:
        scores = torch.tensor([case["attention_scores_last_layer_last_query"]])
        found = measure_attention(scores, torch.tensor(scores.shape[2:]))[:, 0].tolist()
        expected = [case["expected"][name] for name in (*GOLDEN, "interaction_strength")]
        assert found == pytest.approx(expected, rel=1e-4, abs=1e-4)


def test_a_weight_that_underflows_counts_nothing() -> None:
    found = measure_attention(torch.tensor([[[300.0, 0.0], [0.0, 300.0]]]), torch.tensor([2]))
    assert found[:, 0].tolist() == pytest.approx([0, 0, 0.5, 150])


def test_half_precision_keys_are_measured_in_single_precision() -> None:
    query, keys = torch.randn(1, 8, 8).bfloat16(), torch.randn(1, 2, 5, 8).bfloat16()
    low = attention_statistics(query, keys, torch.tensor([5]))
    assert torch.equal(low, attention_statistics(query.float(), keys.float(), torch.tensor([5])))
    assert low.dtype == torch.float32

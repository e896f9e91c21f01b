"""Attention statistics: the golden numbers, of those rows alone that ask, and at no cost else.

That they are those of the keys of a slot is said by `test_cached_passes`.
"""

import json
from pathlib import Path

import pytest
import torch
from torch import Tensor

from models.stack.attention import attention_statistics, masked_statistics, measure
from models.stack.cache import KVCache
from models.stack.transformer import Transformer
from tests.models.stack.stacks import CONFIG, make_stack, vectors

GOLDEN = ("attn_entropy_bits_mean", "attn_varentropy_population", "agreement")


@pytest.fixture(scope="module")
def stack() -> Transformer:
    return make_stack()


def cache_of(stack: Transformer, lengths: dict[int, int]) -> KVCache:
    """Return slots that hold so many positions."""
    cache = KVCache(CONFIG, slots=3, max_length=20)
    for slot, length in lengths.items():
        places = torch.arange(length)
        stack.extend(vectors(length, slot), places, cache, slot, places)
    return cache


def test_golden_statistics(golden: Path) -> None:
    cases = json.loads((golden / "samplers" / "entropix_metrics.dev.json").read_text())["cases"]
    for case in cases:
        found = measure(torch.tensor(case["attention_scores_last_layer_last_query"])).tolist()
        expected = [case["expected"][name] for name in (*GOLDEN, "interaction_strength")]
        assert found == pytest.approx(expected, rel=1e-4, abs=1e-4)


def test_a_weight_that_underflows_counts_nothing() -> None:
    found = measure(torch.tensor([[300.0, 0.0], [0.0, 300.0]]))
    assert found.tolist() == pytest.approx([0, 0, 0.5, 150])


def test_half_precision_keys_are_measured_in_single_precision() -> None:
    query, keys = torch.randn(8, 8).bfloat16(), torch.randn(2, 5, 8).bfloat16()
    low = attention_statistics([query], [keys])
    assert torch.equal(low, attention_statistics([query.float()], [keys.float()]))
    assert low.dtype == torch.float32


def test_attention_of_padded_rows_is_told_as_that_of_each() -> None:
    generator, lengths = torch.Generator().manual_seed(1), [1, 17, 40]
    queries = torch.randn(3, CONFIG.heads, CONFIG.head_dim, generator=generator)
    keys = torch.randn(3, CONFIG.kv_heads, 40, CONFIG.head_dim, generator=generator)
    found = masked_statistics(queries, keys, torch.tensor(lengths))
    own = [rows[:, :length] for rows, length in zip(keys, lengths, strict=True)]
    expected = attention_statistics(queries.unbind(), own)
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=0)


def test_only_the_rows_that_are_asked_are_measured_and_neighbours_change_no_bit(stack) -> None:
    def statistics(slots: list[int], looking: list[int]) -> Tensor:
        cache = cache_of(stack, {slot: slot + 5 for slot in slots})
        at = torch.tensor([slot + 5 for slot in slots])
        rows = vectors(1, 9).expand(len(slots), -1)
        found: Tensor = stack.step_with_attention(rows, at, cache, slots, looking)[1]
        return found

    one, all_three = statistics([0, 1, 2], [1]), statistics([0, 1, 2], [0, 1, 2])
    assert torch.equal(one, all_three[:, 1:2])
    assert torch.equal(statistics([2, 1, 0], [1]), one)


def test_looking_changes_no_bit_of_what_comes_out(stack) -> None:
    x, at = vectors(12), torch.arange(12)
    plain, looking = cache_of(stack, {}), cache_of(stack, {})
    looked, _ = stack.extend_with_queries(x[:10], at[:10], looking, 0, at[:10])
    assert torch.equal(stack.extend(x[:10], at[:10], plain, 0, at[:10]), looked)
    for place in (slice(10, 11), slice(11, 12)):
        looked, _ = stack.step_with_attention(x[place], at[place], looking, [0], [0])
        assert torch.equal(stack.step(x[place], at[place], plain, [0]), looked)


def test_nothing_is_measured_where_nobody_asks(stack, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("models.stack.transformer.attention_statistics", None)
    cache = cache_of(stack, {0: 5})
    stack.step(vectors(1), torch.tensor([5]), cache, [0])
    with pytest.raises(TypeError):
        stack.step_with_attention(vectors(1), torch.tensor([6]), cache, [0], [0])

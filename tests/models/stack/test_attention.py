"""Attention statistics: the golden numbers, and those of the cached passes against a slow pass."""

import json
import math
from pathlib import Path

import pytest
import torch
from torch import Tensor

from models.stack.attention import attention_statistics, measure
from models.stack.cache import KVCache
from models.stack.transformer import Transformer
from tests.models.stack.stacks import CONFIG, make_stack, vectors


@pytest.fixture(scope="module")
def stack() -> Transformer:
    return make_stack()


def slow_statistics(stack: Transformer, x: Tensor) -> list[float]:
    """The four numbers of the last position of ``[S, D]``, head by head in plain Python."""
    count = len(x)
    places = torch.arange(count)
    cos, sin = stack.cos[places], stack.sin[places]
    bias = torch.zeros(1, 1, count, count).masked_fill(
        torch.ones(count, count, dtype=torch.bool).triu(1), -torch.inf
    )
    hidden = x[None]
    for block in stack.blocks[:-1]:
        hidden = block(hidden, cos[None], sin[None], bias)
    last = stack.blocks[-1]
    queries, keys, _ = last.attention.project(last.attention_norm(hidden[0]), cos, sin)
    scores, weights = [], []
    for head in range(CONFIG.heads):
        kv = head * CONFIG.kv_heads // CONFIG.heads
        row = [
            float(queries[-1, head].double() @ keys[place, kv].double())
            / math.sqrt(CONFIG.head_dim)
            for place in range(count)
        ]
        scores.append(row)
        weights.append([math.exp(score) / sum(map(math.exp, row)) for score in row])
    entropies = [-sum(w * math.log2(w) for w in row) for row in weights]
    mean = sum(entropies) / len(entropies)
    middle = [sum(column) / CONFIG.heads for column in zip(*weights, strict=True)]
    cells = CONFIG.heads * count
    return [
        mean,
        sum((e - mean) ** 2 for e in entropies) / len(entropies),
        sum(abs(w - m) for row in weights for w, m in zip(row, middle, strict=True)) / cells,
        sum(abs(score) for row in scores for score in row) / cells,
    ]


def close(statistics: Tensor, row: int, expected: list[float]) -> bool:
    return statistics[:, row].tolist() == pytest.approx(expected, abs=1e-4)


def test_golden_statistics(golden: Path) -> None:
    cases = json.loads((golden / "samplers" / "entropix_metrics.dev.json").read_text())["cases"]
    names = (
        "attn_entropy_bits_mean", "attn_varentropy_population", "agreement",
        "interaction_strength",
    )  # fmt: skip
    for case in cases:
        found = measure(torch.tensor(case["attention_scores_last_layer_last_query"])).tolist()
        expected = [case["expected"][name] for name in names]
        assert found == pytest.approx(expected, rel=1e-4, abs=1e-4)


def test_a_weight_that_underflows_counts_nothing() -> None:
    found = measure(torch.tensor([[300.0, 0.0], [0.0, 300.0]]))
    assert found.tolist() == pytest.approx([0, 0, 0.5, 150])


def test_half_precision_keys_are_measured_in_single_precision() -> None:
    query, keys = torch.randn(8, 8).bfloat16(), torch.randn(2, 5, 8).bfloat16()
    low, high = (
        attention_statistics([query], [keys]),
        attention_statistics([query.float()], [keys.float()]),
    )
    assert torch.equal(low, high)
    assert low.dtype == torch.float32


def test_slots_of_different_lengths_are_each_measured_over_their_own_keys(
    stack: Transformer,
) -> None:
    lengths, slots = [3, 50, 1, 17], [4, 0, 5, 2]
    sequences = [vectors(length + 4, seed) for seed, length in enumerate(lengths)]
    cache = KVCache(CONFIG, slots=6, max_length=60)
    # What lies beyond a slot's length must not be seen.
    for tensor in (*cache.keys, *cache.values):
        tensor.fill_(1e3)
    for x, slot, length in zip(sequences, slots, lengths, strict=True):
        places = torch.arange(length)
        _, queries = stack.extend_with_queries(x[:length], places, cache, slot, places)
        found = attention_statistics([queries[-1]], [cache.keys_of(-1, slot)])
        assert close(found, 0, slow_statistics(stack, x[:length]))
    for step in range(4):
        at = [length + step for length in lengths]
        rows = torch.stack([x[i] for x, i in zip(sequences, at, strict=True)])
        _, found = stack.step_with_attention(rows, torch.tensor(at), cache, slots, [0, 1, 2, 3])
        for row, (x, end) in enumerate(zip(sequences, at, strict=True)):
            assert close(found, row, slow_statistics(stack, x[: end + 1]))


def test_after_a_rewind_they_are_those_of_what_was_kept(stack: Transformer) -> None:
    x, other = vectors(40), vectors(5, seed=1)
    cache = KVCache(CONFIG, slots=1, max_length=60)
    stack.extend(x[:10], torch.arange(10), cache, 0, torch.arange(10))
    for place in range(10, 40):
        stack.step(x[place, None], torch.tensor([place]), cache, [0])
    cache.rewind(0, 21)
    path = torch.cat([x[:21], other])
    for place in range(21, 26):
        _, found = stack.step_with_attention(
            path[place, None], torch.tensor([place]), cache, [0], rows=[0]
        )
        assert close(found, 0, slow_statistics(stack, path[: place + 1]))


def test_only_the_rows_that_are_asked_are_measured_and_neighbours_change_no_bit(
    stack: Transformer,
) -> None:
    def statistics(slots: list[int], looking: list[int]) -> list[list[float]]:
        cache = KVCache(CONFIG, slots=3, max_length=20)
        for slot in slots:
            places = torch.arange(slot + 5)
            stack.extend(vectors(slot + 5, slot), places, cache, slot, places)
        rows = torch.stack([vectors(1, 9)[0]] * len(slots))
        at = torch.tensor([slot + 5 for slot in slots])
        _, found = stack.step_with_attention(rows, at, cache, slots, looking)
        return found.tolist()

    one, all_three = statistics([0, 1, 2], [1]), statistics([0, 1, 2], [0, 1, 2])
    assert one == [[numbers[1]] for numbers in all_three]
    assert statistics([2, 1, 0], [1]) == one


def test_looking_changes_no_bit_of_what_comes_out(stack: Transformer) -> None:
    x, caches = vectors(12), [KVCache(CONFIG, slots=1, max_length=20) for _ in range(2)]
    places = torch.arange(10)
    plain = stack.extend(x[:10], places, caches[0], 0, places)
    looked, _ = stack.extend_with_queries(x[:10], places, caches[1], 0, places)
    assert torch.equal(plain, looked)
    for place in (10, 11):
        at = torch.tensor([place])
        plain = stack.step(x[place, None], at, caches[0], [0])
        looked, _ = stack.step_with_attention(x[place, None], at, caches[1], [0], [0])
        assert torch.equal(plain, looked)


def test_nothing_is_measured_where_nobody_asks(
    stack: Transformer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("models.stack.transformer.attention_statistics", None)
    cache = KVCache(CONFIG, slots=1, max_length=20)
    stack.extend(vectors(5), torch.arange(5), cache, 0, torch.arange(5))
    stack.step(vectors(1), torch.tensor([5]), cache, [0])
    with pytest.raises(TypeError):
        stack.step_with_attention(vectors(1), torch.tensor([6]), cache, [0], [0])

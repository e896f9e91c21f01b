"""The stack in integers: near the float passes, and no row ever feels its neighbours."""

import copy

import pytest
import torch
from torch import Tensor

from models.config import ModelConfig
from models.int8.cache import Int8Cache
from models.int8.quantized import quantize_linears
from models.stack.attention import attention_statistics
from models.stack.cache import KVCache
from models.stack.slot_cache import SlotCache
from models.stack.taps import Taps
from models.stack.transformer import Transformer

CONFIG = ModelConfig(width=256, layers=2, heads=4, kv_heads=2, ffn=896, phonemes=("a",))
ROWS = 32


def noise(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def new_cache(slots: int, room: int = 200, config: ModelConfig = CONFIG) -> Int8Cache:
    return Int8Cache(config, slots, room)


def of_integers(stack: Transformer) -> Transformer:
    quantized = copy.deepcopy(stack)
    quantize_linears(quantized)
    return quantized


@pytest.fixture(scope="module")
def floats() -> Transformer:
    torch.manual_seed(0)
    return Transformer(CONFIG).eval().requires_grad_(False)


@pytest.fixture(scope="module")
def stack(floats: Transformer) -> Transformer:
    return of_integers(floats)


@torch.inference_mode()
def steps(stack: Transformer, prefixes: list[Tensor], count: int) -> Tensor:
    """Prefill a slot for each prefix and step all of them together: ``[count, B, D]``."""
    slots = range(len(prefixes))
    cache = new_cache(len(prefixes))
    for slot, x in enumerate(prefixes):
        stack.extend(x, torch.arange(len(x)), cache, slot, torch.arange(len(x)))
    found = []
    x = torch.stack([prefix[-1] for prefix in prefixes])
    for step in range(count):
        positions = torch.tensor([len(prefix) + step for prefix in prefixes])
        x = stack.step(x, positions, cache, slots)[0]
        found.append(x)
    return torch.stack(found)


def test_a_slot_has_the_same_bits_alone_and_among_any_number(stack: Transformer) -> None:
    prefixes = [noise(5 + 3 * slot, CONFIG.width, seed=slot) for slot in range(ROWS)]
    alone = torch.cat([steps(stack, [prefix], 3) for prefix in prefixes], 1)
    for count in (2, 3, 4, 5, 8, 13, 16, 31, 32):
        assert torch.equal(steps(stack, prefixes[:count], 3), alone[:, :count])
        assert torch.equal(steps(stack, prefixes[-count:], 3), alone[:, -count:])


@torch.inference_mode()
def test_a_prefill_and_steps_are_near_the_uncached_pass(stack: Transformer) -> None:
    # Another order of sums moves a number over the edge of a rounding step now and then: not 1e-4
    # as in float32, but far less than the rounding itself costs.
    x = noise(150, CONFIG.width)
    cache = new_cache(1)
    found = [stack.extend(x[:30], torch.arange(30), cache, 0, torch.arange(30))[0]]
    found += [stack.step(x[i, None], torch.tensor([i]), cache, [0])[0] for i in range(30, len(x))]
    expected = stack(x[None], torch.arange(len(x))[None])[0]
    assert (torch.cat(found) - expected).norm() < 5e-3 * expected.norm()


@torch.inference_mode()
@pytest.mark.parametrize("activation", ["gelu", "silu"])
@pytest.mark.parametrize("kv_heads", [1, 2, 4])
def test_passes_are_near_those_of_floats(activation: str, kv_heads: int) -> None:
    config = CONFIG.model_copy(update={"activation": activation, "kv_heads": kv_heads})
    torch.manual_seed(1)
    floats = Transformer(config).eval().requires_grad_(False)
    x, positions = noise(70, CONFIG.width), torch.arange(70)
    blocks = positions // 15

    def run(stack: Transformer, cache: SlotCache) -> Tensor:
        found = [stack.extend(x[:40], positions[:40], cache, 0, positions[:40])[0]]
        found += [stack.extend(x[40:60], positions[40:60], cache, 0, blocks[40:60])[0]]
        found += [stack.step(x[i, None], positions[i, None], cache, [0])[0] for i in range(60, 70)]
        return torch.cat(found)

    expected = run(floats, KVCache(config, 1, 70))
    found = run(of_integers(floats), new_cache(1, 70, config))
    assert (found - expected).norm() < 0.03 * expected.norm()


@torch.inference_mode()
def test_a_query_is_told_as_it_was_asked(floats: Transformer, stack: Transformer) -> None:
    # What entropix sees: the last layer's attention from a step.
    x, positions = noise(30, CONFIG.width), torch.arange(30)
    found = []
    for one, cache in ((floats, KVCache(CONFIG, 1, 40)), (stack, new_cache(1, 40))):
        one.extend(x[:29], positions[:29], cache, 0, positions[:29])
        _, queries = one.step(x[29:], positions[29:], cache, [0], Taps([-1]))
        keys = cache.keys_of(-1, 0)[None]
        found.append(attention_statistics(queries[0], keys, torch.tensor([30])))
    expected, seen = found
    assert torch.allclose(seen, expected, rtol=0.05, atol=1e-3)


@torch.inference_mode()
def test_a_full_slot_refuses_and_none_has_grown(stack: Transformer) -> None:
    x, positions, cache = noise(6, CONFIG.width), torch.arange(6), new_cache(2, 5)
    with pytest.raises(ValueError, match="slot 0"):
        stack.extend(x, positions, cache, 0, positions)
    stack.extend(x[:5], positions[:5], cache, 1, positions[:5])
    with pytest.raises(ValueError, match="slot 1"):
        stack.step(x[:2], positions[:2], cache, [0, 1])
    assert cache.lengths == [0, 5]


@torch.inference_mode()
def test_a_row_of_no_numbers_stays_one_and_its_neighbours_are_whole(stack: Transformer) -> None:
    x, cache, other = noise(3, CONFIG.width), new_cache(3), new_cache(3)
    positions, slots = torch.zeros(3, dtype=torch.int64), [0, 1, 2]
    expected = stack.step(x, positions, other, slots)[0]
    x[1, 7] = torch.nan
    found = stack.step(x, positions, cache, slots)[0]
    assert found[1].isnan().any()
    assert torch.equal(found[[0, 2]], expected[[0, 2]])


def test_a_cache_of_other_numbers_is_refused(floats: Transformer, stack: Transformer) -> None:
    x, position = noise(1, CONFIG.width), torch.tensor([0])
    for one, cache in ((stack, KVCache(CONFIG, 1, 5)), (floats, new_cache(1))):
        with pytest.raises(ValueError, match=r"Transformer\.new_cache"):
            one.step(x, position, cache, [0])
        with pytest.raises(ValueError, match=r"Transformer\.new_cache"):
            one.extend(x, position, cache, 0)

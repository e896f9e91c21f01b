"""Slots of integers keep what others do: nothing is lost by copying, and rooms are held to."""

import numpy as np
import pytest
import torch

from models.config import ModelConfig
from models.int8 import attention
from models.int8.cache import Int8Cache

CONFIG = ModelConfig(width=48, layers=2, heads=4, kv_heads=2, ffn=16, phonemes=("a",))
SIZE = CONFIG.head_dim


def fill(cache: Int8Cache, slot: int, count: int, seed: int = 0) -> None:
    """Put positions behind a slot's, as a stack would."""
    start = cache.lengths[slot]
    generator = np.random.default_rng((seed, start))
    for layer in cache.layers:
        product = generator.integers(-9999, 9999, (count, 8 * SIZE), dtype=np.int32)
        rotations = np.tile(np.array([1, 0], np.float32)[:, None], (count, 1, SIZE // 2))
        attention.store(
            product,
            np.ones(count, np.float32),
            np.ones(8 * SIZE, np.float32),
            rotations,
            np.arange(count),
            np.full(count, slot),
            np.arange(start, start + count),
            np.empty((count, 4, SIZE), np.float32),
            layer,
        )
    cache.advance(slot, count)


def held(cache: Int8Cache, slot: int) -> torch.Tensor:
    """Return all that attention would see of a slot's keys and values."""
    count, seen = cache.lengths[slot], []
    queries = np.random.default_rng(1).standard_normal((1, 4, SIZE)).astype(np.float32)
    integers, scales = np.empty((1, 4 * SIZE), np.int8), np.empty(1, np.float32)
    for layer in cache.layers:
        attention.attend(
            queries, layer, np.array([slot]), np.array([count]), None, integers, scales
        )
        seen.append(torch.from_numpy(integers * scales[:, None]))
    keys = [cache.keys_of(number, slot).flatten() for number in range(2)]
    return torch.cat([torch.stack(seen).flatten(), *keys])


@pytest.mark.parametrize("count", [1, 63, 64, 65, 130])
def test_a_loaded_slot_holds_what_its_source_held(count: int) -> None:
    source, cache = Int8Cache(CONFIG, 2, 130), Int8Cache(CONFIG, 3, 200)
    fill(source, 1, count)
    cache.load(2, source, source_slot=1)
    assert cache.lengths == [0, 0, count]
    assert torch.equal(held(cache, 2), held(source, 1))
    fill(source, 1, 0)
    fill(cache, 2, 5)
    with pytest.raises(ValueError, match="slot 2 holds"):
        cache.load(2, source, source_slot=1)


@pytest.mark.parametrize("shared", [0, 3, 64, 70])
def test_a_fork_holds_the_same_and_goes_its_own_way(shared: int) -> None:
    cache = Int8Cache(CONFIG, 2, 100)
    for slot in (0, 1):
        fill(cache, slot, 70)
    fill(cache, 0, 20)
    cache.fork(0, 1, shared=shared)
    expected = held(cache, 0)
    assert torch.equal(held(cache, 1), expected)
    fill(cache, 1, 5)
    assert torch.equal(held(cache, 0), expected)


def test_a_rewound_slot_holds_what_it_held_then() -> None:
    cache = Int8Cache(CONFIG, 1, 100)
    fill(cache, 0, 30)
    expected = held(cache, 0)
    fill(cache, 0, 50)
    cache.rewind(0, 30)
    assert torch.equal(held(cache, 0), expected)


def test_keys_are_told_to_within_half_a_step() -> None:
    cache = Int8Cache(CONFIG, 1, 70)
    fill(cache, 0, 70)
    for number, layer in enumerate(cache.layers):
        generator = np.random.default_rng((0, 0))
        for _ in range(number + 1):
            product = generator.integers(-9999, 9999, (70, 8 * SIZE), dtype=np.int32)
        keys = product[:, 4 * SIZE : 6 * SIZE].reshape(70, 2, SIZE).transpose(1, 0, 2)
        error = np.abs(cache.keys_of(number, 0).numpy() - keys)
        assert (error <= 0.501 * layer.key_scales[0, :, :70, None]).all()


def test_a_cache_takes_a_good_quarter_of_floats() -> None:
    cache = Int8Cache(CONFIG.model_copy(update={"width": 256}), 3, 128)
    assert cache.bytes == 2 * 3 * 2 * 128 * 2 * (64 + 4)


def test_positions_that_are_lifted_and_laid_elsewhere_are_those_that_were_written_there() -> None:
    source, moved, written = (Int8Cache(CONFIG, 2, 300) for _ in range(3))
    fill(source, 1, 200)
    lifted = source.lift(1, 70, 150)
    source.rewind(1, 0)
    fill(source, 1, 10, seed=9)  # what was lifted is a copy
    fill(moved, 0, 37, seed=3)
    moved.lay(0, lifted)
    assert moved.lengths == [117, 0]
    fill(written, 0, 200)
    for layer in range(CONFIG.layers):
        np.testing.assert_array_equal(
            moved.keys_of(layer, 0)[:, 37:], written.keys_of(layer, 0)[:, 70:150]
        )
    again = moved.lift(0, 37, 117)
    for one, other in zip(again.arrays, written.lift(0, 70, 150).arrays, strict=True):
        np.testing.assert_array_equal(one, other)
    with pytest.raises(ValueError, match="holds 300 positions, 317 asked for"):
        moved.lay(0, written.lift(0, 0, 200))

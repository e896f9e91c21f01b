"""Attention over integers is near that of floats, and no row feels its neighbours."""

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from cpu.arrays import Bools, Floats, Int8s, Int64s
from models.config import ModelConfig
from models.int8 import attention
from models.int8.cache import Int8Cache, Int8Layer

RNG = np.random.default_rng(0)
INT8_MAX = 127


def floats(*shape: int, size: float = 1.0) -> Floats:
    return (RNG.standard_normal(shape) * size).astype(np.float32)


def filled(
    slots: int, kv_heads: int, room: int, size: int
) -> tuple[Int8Layer, torch.Tensor, torch.Tensor]:
    """Return a layer, and the keys and values in it ``[slots, kv_heads, room, size]``."""
    heads = 4
    config = ModelConfig(
        width=heads * size, layers=1, heads=heads, kv_heads=kv_heads, ffn=8, phonemes=("a",)
    )
    cache = Int8Cache(config, slots, room)
    for slot in range(slots):
        product = RNG.integers(-9999, 9999, (room, (heads + 2 * kv_heads) * size), np.int32)
        attention.store(
            product,
            np.full(room, 2e-4, np.float32),
            np.ones(product.shape[1], np.float32),
            np.tile(np.array([1, 0], np.float32)[:, None], (1, 1, size // 2)),
            np.zeros(room, np.int64),
            np.full(room, slot),
            np.arange(room),
            np.empty((room, heads, size), np.float32),
            cache.layers[0],
        )
    return cache.layers[0], *read(cache.layers[0], size)


def read(layer: Int8Layer, size: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return keys and values as float64, by their layout as it is told."""
    slots, heads, room = layer.key_scales.shape
    t, d = np.meshgrid(np.arange(room), np.arange(size), indexing="ij")
    keys = layer.keys[:, :, t // 32, d // 4, t % 32, d % 4].astype(np.float64) - 128
    values = layer.values[:, :, t // 64, d // 32, t % 64 // 4, d % 32, t % 4] - 128.0
    assert keys.shape == (slots, heads, room, size)
    return (
        torch.from_numpy(keys * layer.key_scales[..., None]),
        torch.from_numpy(values * layer.value_scales[..., None]),
    )


def attend(
    queries: Floats, layer: Int8Layer, slots: Int64s, counts: Int64s, seen: Bools | None = None
) -> tuple[Int8s, Floats]:
    rows, heads, size = queries.shape
    integers, scales = np.empty((rows, heads * size), np.int8), np.empty(rows, np.float32)
    attention.attend(queries, layer, slots, counts, seen, integers, scales)
    return integers, scales


@pytest.mark.slow
def test_keys_and_queries_are_rotated_by_halves_and_kept_in_steps_of_their_own() -> None:
    heads, kv_heads, size, rows = 4, 2, 16, 3
    product = RNG.integers(-30_000, 30_000, (rows, (heads + 2 * kv_heads) * size), np.int32)
    scales, columns = floats(rows) * np.float32(1e-3), np.ones(product.shape[1], np.float32)
    angles = floats(50, size // 2)
    rotations = np.stack([np.cos(angles), np.sin(angles)], 1)
    positions, slots, starts = np.array([4, 49, 0]), np.array([2, 0, 2]), np.array([35, 1, 66])
    queries = np.empty((rows, heads, size), np.float32)
    config = ModelConfig(width=64, layers=1, heads=heads, kv_heads=2, ffn=8, phonemes=("a",))
    layer = Int8Cache(config, 3, 70).layers[0]
    attention.store(product, scales, columns, rotations, positions, slots, starts, queries, layer)
    x = torch.from_numpy(product * scales[:, None].astype(np.float64)).view(rows, -1, size)
    a, b = x[:, : heads + kv_heads].chunk(2, -1)
    cos, sin = (torch.from_numpy(rotations[positions][:, None, place]).double() for place in (0, 1))
    rotated = torch.cat([a * cos - b * sin, b * cos + a * sin], -1)
    np.testing.assert_allclose(queries, rotated[:, :heads], rtol=1e-4, atol=1e-5)
    keys, values = read(layer, size)
    for row, (slot, start) in enumerate(zip(slots, starts, strict=True)):
        for found, expected in (
            (keys, rotated[row, heads:]),
            (values, x[row, heads + kv_heads :]),
        ):
            half_a_step = 0.501 * expected.abs().amax(1, keepdim=True) / INT8_MAX
            assert (found[slot, :, start] - expected).abs().le(half_a_step).all()
    assert not layer.key_scales[1].any()
    assert np.count_nonzero(layer.value_scales) == rows * kv_heads


@pytest.mark.parametrize("count", [1, 2, 5, 31, 32, 64, 65, 100])
@pytest.mark.parametrize("kv_heads", [1, 2, 4])
@pytest.mark.parametrize("size", [4, 16, 40, 64])
def test_attention_is_the_softmax_over_what_a_row_sees(
    count: int, kv_heads: int, size: int
) -> None:
    layer, keys, values = filled(2, kv_heads, 110, size)
    queries, slots, counts = floats(2, 4, size), np.array([1, 0]), np.array([count, 100])
    integers, scales = attend(queries, layer, slots, counts)
    for row, (slot, seen) in enumerate(zip(slots, counts, strict=True)):
        k, v = (x[slot, :, :seen].repeat_interleave(4 // kv_heads, 0) for x in (keys, values))
        query = torch.from_numpy(queries[row])[:, None].double()
        expected = F.scaled_dot_product_attention(query, k, v).flatten()
        found = torch.from_numpy(integers[row] * scales[row].astype(np.float64))
        half_a_step = 0.51 * expected.abs().max() / INT8_MAX
        # 14 bits of queries and weights add a hundredth of a step
        assert (found - expected).abs().le(1.02 * half_a_step).all()


def test_what_a_row_does_not_see_might_as_well_not_be_there() -> None:
    layer, _, _ = filled(1, 2, 200, 16)
    queries, seen = floats(3, 4, 16), np.zeros((3, 200), np.bool_)
    for row, count in enumerate((1, 70, 150)):
        seen[row, :count] = True
    slots = np.zeros(3, np.int64)
    hidden = attend(queries, layer, slots, np.full(3, 200), seen)
    short = attend(queries, layer, slots, np.array([1, 70, 150]))
    assert np.array_equal(hidden[0], short[0])
    assert np.array_equal(hidden[1], short[1])
    odd = np.arange(256) % 2 * (np.arange(256) < 200) == 1
    found = attend(queries[:1], layer, slots[:1], np.array([200]), odd[None, :200].copy())
    k, v = (x[0, :, odd].repeat_interleave(2, 0) for x in read(layer, 16))
    query = torch.from_numpy(queries[0])[:, None].double()
    expected = F.scaled_dot_product_attention(query, k, v).flatten()
    error = torch.from_numpy(found[0][0] * found[1][0].astype(np.float64)) - expected
    assert error.abs().max() < 0.52 * expected.abs().max() / INT8_MAX


def test_thin_attention_is_rounded_finely() -> None:
    # One position has half of all weight, the other 8,000 share the rest: none may round to 0.
    config = ModelConfig(width=32, layers=1, heads=1, kv_heads=1, ffn=8, phonemes=("a",))
    layer = Int8Cache(config, 1, 8001).layers[0]
    layer.key_scales[:] = layer.value_scales[:] = 1 / 127
    layer.keys[:] = 128
    layer.keys[0, 0, 0, 0, 0, 0] = 255  # the first key is 1 in its first dimension
    layer.values[:] = 255
    layer.values[0, 0, 0, :, 0, :, 0] = 128  # and its value 0, where all others have 1
    queries = np.zeros((1, 1, 32), np.float32)
    queries[0, 0, 0] = np.log(8000) * np.sqrt(32)
    integers, scales = attend(queries, layer, np.array([0]), np.array([8001]))
    np.testing.assert_allclose(integers * scales[0], 0.5, atol=0.003)

"""Kernels: each equals its formula in float64, row by row."""

import math

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch.nn import functional as F

from models import kernels

RNG = np.random.default_rng(0)


def floats(*shape: int, size: float = 1.0) -> kernels.Floats:
    return (RNG.standard_normal(shape) * size).astype(np.float32)


def products(*shape: int) -> kernels.Int32s:
    return RNG.integers(-30_000, 30_000, shape, dtype=np.int32)


def wide(product: kernels.Int32s, scales: kernels.Floats, columns: kernels.Floats) -> torch.Tensor:
    return torch.from_numpy(product * scales[:, None].astype(np.float64) * columns)


def rounded(integers: kernels.Int8s, scales: kernels.Floats) -> NDArray[np.float64]:
    return integers.astype(np.float64) * scales[:, None]


def bits(x: kernels.Floats) -> kernels.Bfloat16s:
    return torch.from_numpy(x).bfloat16().view(torch.uint16).numpy()


def test_rounding_is_off_by_half_a_scale_at_most() -> None:
    x = floats(50, 33) * np.logspace(-20, 20, 50, dtype=np.float32)[:, None]
    integers, scales = np.empty(x.shape, np.int8), np.empty(50, np.float32)
    kernels.quantize(x, integers, scales)
    assert (np.abs(integers).max(1) == kernels.STEPS).all()
    assert (np.abs(rounded(integers, scales) - x) <= 0.5001 * scales[:, None]).all()


def test_a_row_of_zeros_stays_zeros() -> None:
    integers, scales = np.ones((1, 8), np.int8), np.empty(1, np.float32)
    kernels.quantize(np.zeros((1, 8), np.float32), integers, scales)
    assert not integers.any()
    assert 0 < scales[0] < 1e-37


@pytest.mark.parametrize("place", [0, 7, 15, 16, 32])
@pytest.mark.parametrize("broken", [np.nan, np.inf])
def test_a_row_that_is_no_number_has_a_scale_that_is_none(place: int, broken: float) -> None:
    x = floats(3, 33)
    x[1, place] = broken
    integers, scales = np.empty(x.shape, np.int8), np.empty(3, np.float32)
    kernels.quantize(x, integers, scales)
    assert np.isfinite(scales).tolist() == [True, False, True]
    kernels.normalize(x, np.ones(33, np.float32), 1e-6, integers, scales)
    assert np.isfinite(scales[[0, 2]]).all()


@pytest.mark.parametrize("size", [1e-4, 1.0, 1e3])
def test_a_norm_is_part_of_the_scale(size: float) -> None:
    x, gain = floats(9, 256, size=size), floats(256)
    integers, scales = np.empty(x.shape, np.int8), np.empty(9, np.float32)
    kernels.normalize(x, gain, 1e-6 * 256, integers, scales)
    expected = F.rms_norm(
        torch.from_numpy(x).double(), (256,), torch.from_numpy(gain).double(), 1e-6
    )
    found = rounded(integers, scales) * math.sqrt(256)
    half_a_step = 0.51 * expected.abs().amax(1, keepdim=True) / kernels.STEPS
    assert (torch.from_numpy(found) - expected).abs().le(half_a_step).all()


def test_a_product_is_scaled_by_row_and_column() -> None:
    product, scales, columns, bias = products(5, 17), floats(5), floats(17), floats(17)
    y, x = np.empty((5, 17), np.float32), floats(5, 17)
    expected = wide(product, scales, columns).numpy()
    kernels.rescale(product, scales, columns, None, y)
    np.testing.assert_allclose(y, expected, rtol=1e-6)
    kernels.rescale(product, scales, columns, bias, y)
    np.testing.assert_allclose(y, expected + bias, rtol=1e-5, atol=1e-2)
    before = x.copy()
    kernels.add(x, product, scales, columns)
    np.testing.assert_allclose(x, expected + before, rtol=1e-5, atol=1e-2)


@pytest.mark.parametrize("silu", [False, True])
@pytest.mark.parametrize("size", [1e-6, 1e-4, 1e-2])
def test_the_gate_is_the_activation_times_the_other_half(silu: bool, size: float) -> None:
    product, scales, columns = products(4, 180), np.full(4, size, np.float32), floats(180)
    integers, found_scales = np.empty((4, 90), np.int8), np.empty(4, np.float32)
    kernels.gate(product, scales, columns, silu, integers, found_scales)
    gate, up = wide(product, scales, columns).chunk(2, -1)
    expected = (F.silu(gate) if silu else F.gelu(gate)) * up
    error = (torch.from_numpy(rounded(integers, found_scales)) - expected).abs()
    assert error.le(0.502 * expected.abs().amax(1, keepdim=True) / kernels.STEPS).all()


def test_keys_and_queries_are_rotated_by_halves_and_kept_in_bfloat16() -> None:
    heads, kv_heads, size, rows = 4, 2, 16, 3
    product, scales = products(rows, (heads + 2 * kv_heads) * size), floats(rows) * 1e-3
    columns = np.ones(product.shape[1], np.float32)
    angles = floats(50, size // 2)
    turns = np.stack([np.cos(angles), np.sin(angles)], 1)
    positions, slots, starts = np.array([4, 49, 0]), np.array([2, 0, 2]), np.array([5, 1, 6])
    queries = np.empty((rows, heads, size), np.float32)
    keys, values = (np.zeros((3, kv_heads, 8, size), np.uint16) for _ in range(2))
    kernels.place(product, scales, columns, turns, positions, slots, starts, queries, keys, values)
    x = wide(product, scales, columns).view(rows, -1, size)
    a, b = x[:, : heads + kv_heads].chunk(2, -1)
    cos, sin = (torch.from_numpy(turns[positions][:, None, place]).double() for place in (0, 1))
    rotated = torch.cat([a * cos - b * sin, b * cos + a * sin], -1)
    np.testing.assert_allclose(queries, rotated[:, :heads], rtol=1e-4, atol=1e-5)
    for row, (slot, start) in enumerate(zip(slots, starts, strict=True)):
        for found, expected in (
            (keys, rotated[row, heads:]),
            (values, x[row, heads + kv_heads :]),
        ):
            kept = torch.from_numpy(found[slot, :, start]).view(torch.bfloat16).double()
            assert (kept - expected).abs().le(2**-8 * expected.abs() + 1e-5).all()
    assert not keys[1].any()
    assert not values[2, :, 0].any()


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 8, 31, 100])
@pytest.mark.parametrize("kv_heads", [1, 2, 4])
def test_attention_is_the_softmax_over_what_a_row_sees(count: int, kv_heads: int) -> None:
    heads, size = 4, 16
    queries, slots, counts = floats(2, heads, size), np.array([1, 0]), np.array([count, 100])
    keys, values = (bits(floats(2, kv_heads, 110, size, size=2)) for _ in range(2))
    integers, scales = np.empty((2, heads * size), np.int8), np.empty(2, np.float32)
    kernels.attend(queries, keys, values, slots, counts, integers, scales)
    found = torch.from_numpy(rounded(integers, scales))
    for row, (slot, seen) in enumerate(zip(slots, counts, strict=True)):
        k, v = (
            torch
            .from_numpy(x[slot, :, :seen])
            .view(torch.bfloat16)
            .double()
            .repeat_interleave(heads // kv_heads, 0)
            for x in (keys, values)
        )
        query = torch.from_numpy(queries[row])[:, None].double()
        expected = F.scaled_dot_product_attention(query, k, v).flatten()
        half_a_step = 0.51 * expected.abs().max() / kernels.STEPS
        assert (found[row] - expected).abs().le(half_a_step).all()


def test_a_row_attends_alike_alone_and_among_others() -> None:
    queries, counts = floats(8, 4, 64), np.arange(60, 140, 10)
    keys, values = (bits(floats(8, 2, 140, 64)) for _ in range(2))
    slots = np.arange(8)

    def attend(rows: slice) -> tuple[kernels.Int8s, kernels.Floats]:
        count = len(slots[rows])
        integers, scales = np.empty((count, 256), np.int8), np.empty(count, np.float32)
        kernels.attend(
            queries[rows].copy(), keys, values, slots[rows], counts[rows], integers, scales
        )
        return integers, scales

    together = attend(slice(8))
    for row in range(8):
        alone = attend(slice(row, row + 1))
        assert np.array_equal(alone[0][0], together[0][row])
        assert alone[1][0] == together[1][row]

"""Kernels: each equals its formula in float64, row by row."""

import math

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch.nn import functional as F

from cpu.arrays import Floats, Int8s, Int32s
from models.int8 import kernels

RNG = np.random.default_rng(0)


def floats(*shape: int, size: float = 1.0) -> Floats:
    return (RNG.standard_normal(shape) * size).astype(np.float32)


def products(*shape: int) -> Int32s:
    return RNG.integers(-30_000, 30_000, shape, dtype=np.int32)


def wide(product: Int32s, scales: Floats, columns: Floats) -> torch.Tensor:
    return torch.from_numpy(product * scales[:, None].astype(np.float64) * columns)


def rounded(integers: Int8s, scales: Floats) -> NDArray[np.float64]:
    return integers.astype(np.float64) * scales[:, None]


def test_rounding_is_off_by_half_a_scale_at_most() -> None:
    x = floats(50, 33) * np.logspace(-20, 20, 50, dtype=np.float32)[:, None]
    integers, scales = np.empty(x.shape, np.int8), np.empty(50, np.float32)
    kernels.quantize(x, integers, scales)
    assert (np.abs(integers).max(1) == kernels.INT8_MAX).all()
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
    half_a_step = 0.51 * expected.abs().amax(1, keepdim=True) / kernels.INT8_MAX
    assert (torch.from_numpy(found) - expected).abs().le(half_a_step).all()


@pytest.mark.parametrize("size", [1e-4, 1.0, 1e3])
def test_the_last_norm_is_that_of_the_formula(size: float) -> None:
    x, gain, y = floats(9, 250, size=size), floats(250), np.empty((9, 250), np.float32)
    kernels.rms_norm(x, gain, 1e-6, y)
    wide_x, wide_gain = torch.from_numpy(x).double(), torch.from_numpy(gain).double()
    expected = F.rms_norm(wide_x, (250,), wide_gain, 1e-6)
    np.testing.assert_allclose(y, expected.numpy(), rtol=1e-6)


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
    assert error.le(0.502 * expected.abs().amax(1, keepdim=True) / kernels.INT8_MAX).all()

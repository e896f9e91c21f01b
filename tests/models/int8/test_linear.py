"""Int8 linears: near the float ones, and no row ever feels its neighbours."""

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from models.int8 import kernels
from models.int8.linear import Int8Linear

SHAPES = [(512, 256), (256, 896), (64, 1024), (1025, 256), (48, 16), (7, 5)]
ROWS = 32


def noise(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def rounded(x: Tensor) -> Tensor:
    """Return what is left of rows ``[R, D]`` after rounding, in float64."""
    integers, scales = np.empty(x.shape, np.int8), np.empty(len(x), np.float32)
    kernels.quantize(x.numpy(), integers, scales)
    return torch.from_numpy(integers).double() * torch.from_numpy(scales).double()[:, None]


def linear(outputs: int, inputs: int, *, bias: bool = False) -> nn.Linear:
    layer = nn.Linear(inputs, outputs, bias=bias)
    nn.init.normal_(layer.weight, std=inputs**-0.5)
    return layer.requires_grad_(False)


@pytest.mark.parametrize(("outputs", "inputs"), SHAPES)
@pytest.mark.parametrize("rows", [1, 2, 7, 40])
def test_the_product_is_that_of_the_rounded_numbers(rows: int, outputs: int, inputs: int) -> None:
    layer, x = linear(outputs, inputs, bias=True), noise(rows, inputs)
    exact = rounded(x) @ rounded(layer.weight).T + layer.bias.double()
    assert (Int8Linear(layer)(x) - exact).abs().max() < 1e-5


def normed(outputs: int, inputs: int) -> tuple[nn.Linear, nn.RMSNorm]:
    norm = nn.RMSNorm(inputs, eps=1e-2)
    nn.init.uniform_(norm.weight, 0.2, 3)
    return linear(outputs, inputs), norm.requires_grad_(False)


@pytest.mark.parametrize(("outputs", "inputs"), SHAPES)
@pytest.mark.parametrize("size", [1e-3, 0.1, 1, 100])
def test_a_norm_before_a_layer_is_part_of_it(outputs: int, inputs: int, size: float) -> None:
    layer, norm = normed(outputs, inputs)
    x = noise(ROWS, inputs) * size
    x[3] = 0
    expected, found = Int8Linear(layer)(norm(x)), Int8Linear(layer, norm)(x)
    assert not found[3].any()
    # One rounding to the other neighbour now and then, because x / rms is no longer rounded first.
    assert (found - expected).norm() < 1e-3 * expected.norm()


@pytest.mark.parametrize("norm", [False, True])
@pytest.mark.parametrize(("outputs", "inputs"), SHAPES)
def test_a_row_has_the_same_bits_in_every_batch(outputs: int, inputs: int, norm: bool) -> None:
    parts = normed(outputs, inputs) if norm else (linear(outputs, inputs, bias=True),)
    layer, x = Int8Linear(*parts), noise(ROWS, inputs)
    x[5] *= 1e4  # a loud neighbour
    alone = torch.cat([layer(x[row, None]) for row in range(ROWS)])
    for count in range(1, ROWS + 1):
        assert torch.equal(layer(x[:count]), alone[:count])
        assert torch.equal(layer(x[-count:]), alone[-count:])


def test_leading_dimensions_are_rows() -> None:
    layer, x = Int8Linear(linear(12, 8, bias=True)), noise(2, 3, 8)
    assert torch.equal(layer(x), layer(x.view(6, 8)).view(2, 3, 12))


def test_threads_share_a_large_product_and_change_no_bit() -> None:
    layer, x = Int8Linear(linear(4128, 512)), noise(5, 512)
    alone = layer(x)
    torch.set_num_threads(3)
    try:
        assert torch.equal(layer(x), alone)
    finally:
        torch.set_num_threads(1)

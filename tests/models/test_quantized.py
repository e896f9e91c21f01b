"""Int8 linears: near the float ones, and no row ever feels its neighbours."""

import copy

import pytest
import torch
from torch import Tensor, nn

from app.settings import BUILTIN_MODEL
from models.cache import KVCache
from models.checkpoints import load_lm
from models.config import ModelConfig
from models.quantized import (
    STEPS,
    Int8Linear,
    is_quantized,
    quantize_linears,
    quantize_rows,
)
from models.transformer import Transformer
from models.valle import Valle

SHAPES = [(512, 256), (256, 896), (64, 1024), (1025, 256), (48, 16), (7, 5)]
ROWS = 32
CONFIG = ModelConfig(width=256, layers=2, heads=4, kv_heads=2, ffn=896, phonemes=("a",))


def noise(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def linear(outputs: int, inputs: int, *, bias: bool = False) -> nn.Linear:
    layer = nn.Linear(inputs, outputs, bias=bias)
    nn.init.normal_(layer.weight, std=inputs**-0.5)
    return layer.requires_grad_(False)


@pytest.fixture(scope="module")
def stack() -> Transformer:
    torch.manual_seed(0)
    stack = Transformer(CONFIG).eval().requires_grad_(False)
    quantize_linears(stack)
    return stack


def test_rounding_is_off_by_half_a_scale_at_most() -> None:
    x = noise(50, 33) * torch.logspace(-20, 20, 50)[:, None]
    rows, scales = quantize_rows(x)
    assert rows.dtype == torch.int8
    assert (rows.abs().amax(1) == STEPS).all()
    assert ((rows * scales - x).abs() <= 0.5001 * scales).all()


def test_a_row_of_zeros_stays_zeros() -> None:
    x = noise(3, 16)
    x[1] = 0
    found = Int8Linear(linear(8, 16))(x)
    assert found.isfinite().all()
    assert not found[1].any()
    assert found[0].any()


@pytest.mark.parametrize(("outputs", "inputs"), SHAPES)
@pytest.mark.parametrize("rows", [1, 2, 7, 40])
def test_the_product_is_that_of_the_rounded_numbers(rows: int, outputs: int, inputs: int) -> None:
    layer, x = linear(outputs, inputs, bias=True), noise(rows, inputs)
    weight, scales = quantize_rows(layer.weight)
    left, left_scales = quantize_rows(x)
    exact = (left_scales * left).double() @ (scales * weight).double().T + layer.bias.double()
    assert (Int8Linear(layer)(x) - exact).abs().max() < 1e-5


@pytest.mark.parametrize(("outputs", "inputs"), SHAPES)
def test_it_is_within_two_percent_of_the_float_layer(outputs: int, inputs: int) -> None:
    layer, x = linear(outputs, inputs), noise(64, inputs)
    expected = layer(x)
    assert (Int8Linear(layer)(x) - expected).norm() < 0.02 * expected.norm()


@pytest.mark.parametrize(("outputs", "inputs"), SHAPES)
def test_a_row_has_the_same_bits_in_every_batch(outputs: int, inputs: int) -> None:
    layer, x = Int8Linear(linear(outputs, inputs, bias=True)), noise(ROWS, inputs)
    x[5] *= 1e4  # a loud neighbour
    alone = torch.cat([layer(x[row, None]) for row in range(ROWS)])
    for count in range(1, ROWS + 1):
        assert torch.equal(layer(x[:count]), alone[:count])
        assert torch.equal(layer(x[-count:]), alone[-count:])


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


@pytest.mark.parametrize(("outputs", "inputs"), SHAPES)
def test_a_row_behind_a_norm_has_the_same_bits_in_every_batch(outputs: int, inputs: int) -> None:
    layer, x = Int8Linear(*normed(outputs, inputs)), noise(ROWS, inputs)
    x[5] *= 1e4
    alone = torch.cat([layer(x[row, None]) for row in range(ROWS)])
    for count in range(1, ROWS + 1):
        assert torch.equal(layer(x[:count]), alone[:count])
        assert torch.equal(layer(x[-count:]), alone[-count:])


def test_leading_dimensions_are_rows() -> None:
    layer, x = Int8Linear(linear(12, 8, bias=True)), noise(2, 3, 8)
    assert torch.equal(layer(x), layer(x.view(6, 8)).view(2, 3, 12))


def test_no_float_linear_is_left_in_a_model() -> None:
    model = Valle(CONFIG)
    count = sum(isinstance(module, nn.Linear) for module in model.modules())
    assert not is_quantized(model)
    quantize_linears(model)
    assert is_quantized(model)
    kinds = [type(module) for module in model.modules()]
    assert nn.Linear not in kinds
    assert kinds.count(Int8Linear) == count == 4 * CONFIG.layers + CONFIG.levels


@torch.inference_mode()
def steps(stack: Transformer, prefixes: list[Tensor], count: int) -> Tensor:
    """Prefill a slot for each prefix and step all of them together: ``[count, B, D]``."""
    slots = range(len(prefixes))
    cache = KVCache(CONFIG, slots=len(prefixes), max_length=200)
    for slot, x in enumerate(prefixes):
        stack.extend(x, torch.arange(len(x)), cache, slot, torch.arange(len(x)))
    found = []
    x = torch.stack([prefix[-1] for prefix in prefixes])
    for step in range(count):
        positions = torch.tensor([len(prefix) + step for prefix in prefixes])
        x = stack.step(x, positions, cache, slots)
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
    cache = KVCache(CONFIG, slots=1, max_length=len(x))
    found = [stack.extend(x[:30], torch.arange(30), cache, 0, torch.arange(30))]
    found += [stack.step(x[i, None], torch.tensor([i]), cache, [0]) for i in range(30, len(x))]
    expected = stack(x[None], torch.arange(len(x))[None])[0]
    assert (torch.cat(found) - expected).norm() < 5e-3 * expected.norm()


@pytest.mark.weights
@torch.inference_mode()
def test_the_builtin_voice_has_nearly_the_same_logits() -> None:
    model = load_lm(BUILTIN_MODEL)
    quantized = copy.deepcopy(model)
    quantize_linears(quantized)
    generator = torch.Generator().manual_seed(0)
    codes = torch.randint(model.config.codes, (60, model.config.levels), generator=generator)
    for level in (1, 4, 7):
        prefix = model.prefix([1, 20, 30, 40, 2], level)
        expected = model.nar_logits(prefix, codes, level).log_softmax(-1)
        found = quantized.nar_logits(prefix, codes, level).log_softmax(-1)
        divergence = (expected.exp() * (expected - found)).sum(-1).mean()
        assert divergence < 0.01  # nats

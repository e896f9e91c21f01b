"""A row of a step, and of a head, has the same bits whatever the number of rows."""

import itertools

import pytest
import torch
from torch import Tensor

from models.config import ModelConfig
from models.int8.quantized import quantize_linears
from models.stack.batching import STRATEGIES, Batching, measure_batching
from models.valle import Valle

CONFIG = ModelConfig(
    width=64, layers=2, heads=4, kv_heads=2, ffn=112, codes=256, phonemes=tuple("abc")
)
ROWS = 9
pytestmark = pytest.mark.usefixtures("without_gradients")


@pytest.fixture(scope="module", params=["gelu", "silu", "int8"])
def model(request: pytest.FixtureRequest) -> Valle:
    torch.manual_seed(0)
    activation = "silu" if request.param == "silu" else "gelu"
    model = Valle(CONFIG.model_copy(update={"activation": activation}))
    model.eval().requires_grad_(False)
    if request.param == "int8":
        quantize_linears(model)
    return model


def logits_of(model: Valle, rows: list[int]) -> Tensor:
    """Return ``[3, B, V]`` of three steps of slots that hold unlike numbers of positions."""
    generator = torch.Generator().manual_seed(1)
    held = [torch.randn(5 + 3 * row, CONFIG.width, generator=generator) for row in range(ROWS)]
    fed = torch.randn(3, ROWS, CONFIG.width, generator=generator)
    cache = model.new_cache(ROWS, 50)
    for row in rows:
        counted = torch.arange(len(held[row]))
        model.transformer.extend(held[row], counted, cache, row, counted)
    steps = []
    for step in range(3):
        positions = torch.tensor([len(held[row]) + step for row in rows])
        hidden = model.transformer.step(fed[step, rows], positions, cache, rows)[0]
        steps.append(model.logits(hidden, 0))
    return torch.stack(steps)


@pytest.mark.parametrize("count", range(1, ROWS + 1))
def test_a_row_of_a_step_has_the_same_bits_in_every_batch(model: Valle, count: int) -> None:
    assert model.transformer.batching.invariant
    together = logits_of(model, list(range(ROWS)))
    for start in (0, ROWS - count):
        rows = list(range(start, start + count))
        assert torch.equal(logits_of(model, rows), together[:, rows])


@pytest.mark.parametrize("way", STRATEGIES, ids=str)
def test_every_way_of_batching_gives_the_same_steps_but_for_rounding(way: Batching) -> None:
    torch.manual_seed(0)
    model = Valle(CONFIG).eval().requires_grad_(False)
    expected = logits_of(model, list(range(ROWS)))
    model.transformer._batching = way
    torch.testing.assert_close(logits_of(model, list(range(ROWS))), expected)


class ProcessorThat:
    """Maps rows to themselves, with bits that depend on how many there are."""

    def __init__(self, kernel: dict[int, float], left_over: int = 0) -> None:
        """Take what is added to every entry at some numbers of rows, and to the last rows."""
        self.kernel, self.left_over = kernel, left_over

    def __call__(self, x: Tensor) -> Tensor:
        y = x + self.kernel.get(len(x), 0.0)
        y[len(y) - self.left_over :] += 1.0
        return y


@pytest.mark.parametrize(
    ("processor", "expected"),
    [
        (ProcessorThat({}), Batching()),
        (ProcessorThat({1: 1.0, 2: 1.0, 3: 1.0}), Batching(pad_to=4)),
        (ProcessorThat({1: 1.0, 5: 1.0}), Batching(pad_to=8)),
        (ProcessorThat({1: 1.0, 9: 1.0}), Batching(pad_to=4, block_rows=4)),
        (ProcessorThat({count: count for count in range(33)}), Batching(pad_to=4, block_rows=4)),
        (ProcessorThat({}, left_over=1), Batching(pad_to=1, block_rows=1)),
    ],
)
def test_the_first_way_that_is_invariant_on_this_processor_is_used(
    processor: ProcessorThat, expected: Batching
) -> None:
    assert measure_batching([(processor, 8)]) == expected


def test_where_rows_differ_by_their_place_it_is_said_that_no_way_was_found() -> None:
    calls = itertools.count()
    found = measure_batching([(lambda x: x + next(calls), 8)])
    assert not found.invariant
    assert "no way" in str(found)

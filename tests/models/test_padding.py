"""A row of a step, and of a head, has the same bits whatever the number of rows."""

import pytest
import torch
from torch import nn

from models.config import ModelConfig
from models.int8.quantized import quantize_linears
from models.padding import LEAST_ROWS, pad_rows
from models.valle import Valle

CONFIG = ModelConfig(
    width=64, layers=2, heads=4, kv_heads=2, ffn=112, codes=256, phonemes=tuple("abc")
)
ROWS = 9


@pytest.fixture(scope="module", params=["float32", "int8"])
def model(request: pytest.FixtureRequest) -> Valle:
    torch.manual_seed(0)
    model = Valle(CONFIG).eval().requires_grad_(False)
    if request.param == "int8":
        quantize_linears(model)
    return model


def logits_of(model: Valle, rows: list[int]) -> torch.Tensor:
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
        hidden = model.transformer.step(fed[step, rows], positions, cache, rows)
        steps.append(model.logits(hidden, 0))
    return torch.stack(steps)


@pytest.mark.parametrize("count", range(1, ROWS + 1))
def test_a_row_of_a_step_has_the_same_bits_in_every_batch(model: Valle, count: int) -> None:
    together = logits_of(model, list(range(ROWS)))
    for start in (0, ROWS - count):
        rows = list(range(start, start + count))
        assert torch.equal(logits_of(model, rows), together[:, rows])


def test_only_few_rows_of_float_layers_are_padded() -> None:
    linear, few, many = nn.Linear(3, 2), torch.ones(2, 3), torch.ones(LEAST_ROWS, 3)
    assert pad_rows(few, linear).tolist() == [[1.0] * 3] * 2 + [[0.0] * 3] * (LEAST_ROWS - 2)
    assert pad_rows(many, linear) is many
    assert pad_rows(few, nn.Identity()) is few

"""A kernel that does not compute what torch does is left to torch."""

import logging
from typing import Any

import pytest
import torch
from torch import Tensor

from models.cuda.kernels import operators, reference
from models.cuda.kernels.check import differ, usable
from models.cuda.kernels.choice import FUSED, NAMES, TORCH
from samplers.ar import plain
from tests.models.stack.stacks import CONFIG

CPU = torch.device("cpu")


def test_where_all_compute_the_same_all_are_fused() -> None:
    assert usable(CONFIG, CPU) == FUSED
    assert str(FUSED) == "fused: norm, gated, store, attend, begin, draw"
    assert str(TORCH) == "fused: none"


@pytest.mark.parametrize("name", NAMES)
def test_one_that_cannot_run_is_left_to_torch_and_told(
    name: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: Any) -> None:
        raise RuntimeError("no C compiler")

    monkeypatch.setattr(operators, name, broken)
    with caplog.at_level(logging.WARNING):
        kernels = usable(CONFIG, CPU)
    assert kernels.fused == set(NAMES) - {name}
    assert f"{name} is torch's: RuntimeError: no C compiler" in str(kernels)
    assert name in caplog.text


def test_one_that_computes_something_else_is_left_to_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    def attend(queries: Tensor, keys: Tensor, values: Tensor, seen: Tensor, *rest: Any) -> Tensor:
        return reference.attend(queries, keys, values, (seen - 1).clamp(min=1), *rest)

    def draw(logits: Tensor, *rest: Any) -> None:
        plain.draw(-logits, *rest)

    def store(qkv: Tensor, rotations: Tensor, keys: Tensor, values: Tensor, *rest: Any) -> Tensor:
        return reference.store(qkv, rotations, keys, values.clone(), *rest)

    for own in (attend, draw, store):
        monkeypatch.setattr(operators, own.__name__, own)
    assert usable(CONFIG, CPU).fused == {"norm", "gated", "begin"}


def test_results_differ_if_more_than_their_type_allows() -> None:
    x = torch.linspace(-1, 1, 9)
    assert not differ(x, x + 1e-6, torch.float32)
    assert "differs by 0.001" in differ(x, x + 1e-3, torch.float32)
    assert not differ(x, x + 1e-3, torch.bfloat16)
    assert "NaN" in differ(x, x.masked_fill(x > 0, torch.nan), torch.float32)

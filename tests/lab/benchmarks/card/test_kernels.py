"""The ticket's comparison of kernels, tried on a CPU, where each is its own reference."""

import pytest
import torch

from lab.benchmarks.card.kernels import compared
from models.cuda.kernels import operators
from models.cuda.kernels.operators import NAMES

CPU = torch.device("cpu")


@pytest.mark.slow
def test_every_kernel_is_told_and_one_that_differs_misses_the_target(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rows, (target,) = compared(CPU, tiny=True)
    assert [(row["kernel"], row["found"]) for row in rows] == [(name, "as torch") for name in NAMES]
    assert target.holds

    monkeypatch.setattr(operators, "norm", lambda x, *_: x)
    rows, (target,) = compared(CPU, tiny=True)
    assert "differs" in str(rows[0]["found"])
    assert not target.holds

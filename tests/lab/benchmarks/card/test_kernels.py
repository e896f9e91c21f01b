"""The ticket's comparison of kernels, tried on a CPU, where each is its own reference."""

import pytest
import torch

from lab.benchmarks.card.kernels import compared
from models.cuda.kernels import check
from models.cuda.kernels.operators import KERNELS, norm

CPU = torch.device("cpu")


@pytest.mark.slow
def test_every_kernel_is_told_and_one_that_differs_misses_the_target(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rows, (target,) = compared(CPU, tiny=True)
    names = [*(kernel.name for kernel in KERNELS), "sample"]
    assert [(row["kernel"], row["found"]) for row in rows] == [(name, "as torch") for name in names]
    assert target.holds

    faulty = norm._replace(operator=lambda x, *_: x)
    monkeypatch.setattr(check, "KERNELS", (faulty, *KERNELS[1:]))
    rows, (target,) = compared(CPU, tiny=True)
    assert "differs" in str(rows[0]["found"])
    assert not target.holds

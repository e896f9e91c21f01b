"""Sizes that the kernels are tried in, and what calls a kernel itself, by the name of its operator.

On a CPU it runs in Triton's interpreter, which takes milliseconds an operator: few programs share
positions out there.
"""

from collections.abc import Callable, Iterator
from importlib import import_module
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor

from gpu.kernels import Kernel, Trial, distance
from models.config import BlockSpec, ModelConfig
from models.cuda.kernels import check, operators, reference, sharing
from models.cuda.kernels.sharing import PAGE

CLOSE = {torch.float32: 2e-6, torch.bfloat16: 2**-6}
"""Of the largest entry: float32's products are summed in another order; bfloat16 has 8 bits, a
kernel rounds once where operators round two or three times, and integers of 8 bits that are made of
such numbers may be neighbours."""


def size(heads: int, kv_heads: int, head_dim: int, **rest: Any) -> ModelConfig:
    return ModelConfig(
        width=heads * head_dim, heads=heads, kv_heads=kv_heads, layers=1, phonemes=("a",),
        **{"ffn": 96, "codes": 99, "norm_eps": 1e-2} | rest,
    )  # fmt: skip


USUAL = size(6, 2, 10)
SIZES = {
    "usual": USUAL,
    "one head each": size(3, 3, 16, activation="silu", ffn=1030),
    "many heads of one": size(8, 1, 32, norm_eps=1e-6, codes=1024),
    "biases": size(5, 5, 12, activation="relu", ffn=70, block=BlockSpec(bias=True, ffn="plain")),
    "odd sizes": size(5, 1, 12, activation="silu", ffn=7),
}


def launched(kernel: Kernel) -> Kernel:
    """Return a kernel whose operator launches it, on a CPU in the interpreter."""
    return kernel._replace(operator=getattr(import_module(kernel.module), kernel.name))


def kernel_of(name: str, module: ModuleType | None = None) -> Callable[..., Any]:
    """Return a kernel; what attention does not see is NaN for it: it must not even be read."""
    kernel: Callable[..., Any] = getattr(module or import_module(module_of(name)), name)

    def attend(queries: Tensor, keys: Tensor, values: Tensor, seen: Tensor, pages: Tensor) -> Any:
        held = torch.zeros(len(keys), dtype=torch.bool, device=keys.device)
        for row, own in zip(pages, seen.amax(1).tolist(), strict=True):
            places = row[:, None] * PAGE + torch.arange(PAGE, device=row.device)
            held[places.flatten()[:own]] = True
        return kernel(queries, _spoilt(keys, held), _spoilt(values, held), seen, pages)

    return attend if name == "attend" else kernel


def _spoilt(rows: Tensor, held: Tensor) -> Tensor:
    """Return keys or values with NaN where nothing is held; in int8 the scales are."""
    rows = rows.clone()
    spoilt = reference.integers_and_scales(rows)[1] if rows.dtype == torch.int8 else rows
    spoilt[~held] = torch.nan
    return rows


@pytest.fixture
def few_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (check, sharing):
        monkeypatch.setattr(module, "PROGRAMS", 8)
    monkeypatch.setattr(sharing, "STEP", 4)  # so that a product takes several steps


def distances(
    name: str, config: ModelConfig, dtype: torch.dtype, module: ModuleType | None = None
) -> Iterator[float]:
    """Yield by how much a kernel differs from its reference, of each that a start tries."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    kernel = kernel_of(name, module)
    trial = trial_of(name, config, device, dtype)
    for arguments in trial.inputs():
        yield distance(kernel, trial.kernel.reference, arguments, trial.numbers)


def trial_of(name: str, config: ModelConfig, device: torch.device, dtype: torch.dtype) -> Trial:
    trials = check.trials(config, device, dtype)
    return next(trial for trial in trials if trial.kernel.name == name)


def module_of(name: str) -> str:
    kernel: Kernel = getattr(operators, name)
    return kernel.module

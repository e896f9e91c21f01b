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


def module_of(name: str) -> ModuleType:
    return import_module(f"models.cuda.kernels.{operators.MODULES[name]}")


def kernel_of(name: str, module: ModuleType | None = None) -> Callable[..., Any]:
    """Return a kernel; what attention does not see is NaN for it: it must not even be read."""
    kernel: Callable[..., Any] = getattr(module or module_of(name), name)

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
    kernel, expected = kernel_of(name, module), operators.reference_of(name)
    for given in check.inputs_of(config, device, dtype)[name]():
        yield check.distance(kernel, expected, given)

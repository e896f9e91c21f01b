"""Each kernel as one operator of torch: its reference on a CPU, Triton's on a GPU.

So a graph holds one operator for it, on either, and Triton is imported when one first runs on a
GPU. Which of them run, and which operators of torch do instead, say `Kernels`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, Final

import torch
from torch._library.custom_ops import CustomOpDef, custom_op

from models.cuda.kernels import reference
from samplers.ar import plain

MODULES: Final = {
    "norm": "layers", "project": "layers", "add_product": "layers", "store": "layers",
    "attend": "attention", "sample": "plain",
}  # fmt: skip
"""The module of each kernel, which imports Triton."""

NAMES: Final = tuple(MODULES)
"""Of all kernels."""


def reference_of(name: str) -> Callable[..., Any]:
    """Return what a kernel computes, in operators of torch."""
    found: Callable[..., Any] = getattr(plain if hasattr(plain, name) else reference, name)
    return found


def _operator(name: str, result: Callable[..., object], mutates: Sequence[str] = ()) -> CustomOpDef:
    """Return an operator; ``result`` makes what has the shape of its result."""

    def on_gpu(*given: Any) -> Any:
        module = import_module(f"models.cuda.kernels.{MODULES[name]}")
        return getattr(module, name)(*given)

    operator = custom_op(
        f"valle::{name}", reference_of(name), mutates_args=mutates, device_types="cpu"
    )
    operator.register_kernel("cuda")(on_gpu)
    operator.register_fake(result)
    return operator


norm = _operator("norm", lambda x, *_: torch.empty_like(x))
project = _operator(
    "project",
    lambda x, weight, _, __, activation, *___: x.new_empty(
        len(x), len(weight) // reference.halves(activation)
    ),
)
add_product = _operator("add_product", lambda *_: None, ("total",))
store = _operator(
    "store",
    lambda qkv, _, keys, *__: qkv.new_empty(
        len(qkv), qkv.shape[1] - 2 * keys.shape[1], qkv.shape[2]
    ),
    ("keys", "values"),
)
attend = _operator("attend", lambda queries, *_: torch.empty_like(queries).flatten(1))
sample = _operator("sample", lambda *_: None, ("codes", "lengths", "stopped", "results"))


@dataclass(frozen=True)
class Kernels:
    """The kernels that a captured function is made of."""

    # Of `NAMES`, those that run as one kernel; the others are operators of torch
    fused: frozenset[str] = frozenset(NAMES)
    # Why others are not fused, by name
    failed: Mapping[str, str] = field(default_factory=dict, compare=False)

    def __str__(self) -> str:
        """Return which are fused, and why others are not."""
        told = ", ".join(name for name in NAMES if name in self.fused)
        reasons = (f"{name} is torch's: {why}" for name, why in self.failed.items())
        return "; ".join([f"fused: {told or 'none'}", *reasons])

    def of(self, name: str) -> Callable[..., Any]:
        """Return a kernel: one operator if it is fused, else its reference."""
        found: Callable[..., Any] = globals()[name]
        return found if name in self.fused else reference_of(name)


FUSED: Final = Kernels()
TORCH: Final = Kernels(frozenset())

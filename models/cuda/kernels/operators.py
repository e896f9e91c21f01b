"""Each kernel as one operator of torch: its reference on a CPU, Triton's on a GPU.

So a recording holds one operator for it, on either, and Triton is imported when one first runs on a
GPU.
"""

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any, Final

import torch
from torch import Tensor
from torch._library.custom_ops import CustomOpDef, custom_op

from models.cuda.kernels import reference
from samplers.ar import plain

MODULES: Final = {
    "norm": "norm", "gated": "gated", "store": "rotation", "attend": "attention",
    "begin": "plain", "draw": "plain",
}  # fmt: skip
"""The module of each kernel, which imports Triton."""


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


def _begun(*given: Any) -> tuple[Tensor, ...]:
    lengths = given[2]
    found = [torch.empty_like(lengths) for _ in range(4)]
    return (*found, torch.empty_like(lengths, dtype=torch.bool))


norm = _operator("norm", lambda x, *_: torch.empty_like(x))
gated = _operator("gated", lambda both, _: both.new_empty(len(both), both.shape[1] // 2))
store = _operator(
    "store",
    lambda qkv, _, keys, *__: qkv.new_empty(
        len(qkv), qkv.shape[1] - 2 * keys.shape[1], qkv.shape[2]
    ),
    ("keys", "values"),
)
attend = _operator("attend", lambda queries, *_: torch.empty_like(queries).flatten(1))
begin = _operator("begin", _begun)
draw = _operator("draw", lambda *_: None, ("codes", "lengths", "stopped", "results"))

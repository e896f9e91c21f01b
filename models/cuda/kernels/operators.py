"""Each kernel as one operator of torch: its reference on a CPU, Triton's on a GPU.

So a recording holds one operator for it, on either, and Triton is imported when one first runs on a
GPU.
"""

from typing import Any

import torch
from torch import Tensor
from torch.library import custom_op

from models.cuda.kernels import reference
from samplers.ar import plain

norm = custom_op("valle::norm", reference.norm, mutates_args=(), device_types="cpu")
gated = custom_op("valle::gated", reference.gated, mutates_args=(), device_types="cpu")
store = custom_op(
    "valle::store", reference.store, mutates_args=("keys", "values"), device_types="cpu"
)
attend = custom_op("valle::attend", reference.attend, mutates_args=(), device_types="cpu")
begin = custom_op(
    "valle::begin", plain.begin, mutates_args=("lengths", "stopped", "seen"), device_types="cpu"
)
draw = custom_op(
    "valle::draw", plain.draw, mutates_args=("codes", "lengths", "stopped", "results"),
    device_types="cpu",
)  # fmt: skip


@norm.register_kernel("cuda")
def _norm(*args: Any) -> Tensor:
    from models.cuda.kernels.norm import norm

    return norm(*args)


@gated.register_kernel("cuda")
def _gated(*args: Any) -> Tensor:
    from models.cuda.kernels.gated import gated

    return gated(*args)


@store.register_kernel("cuda")
def _store(*args: Any) -> Tensor:
    from models.cuda.kernels.rotation import store

    return store(*args)


@attend.register_kernel("cuda")
def _attend(*args: Any) -> Tensor:
    from models.cuda.kernels.attention import attend

    return attend(*args)


@begin.register_kernel("cuda")
def _begin(*args: Any) -> tuple[Tensor, ...]:
    from models.cuda.kernels.plain import begin

    return begin(*args)


@draw.register_kernel("cuda")
def _draw(*args: Any) -> None:
    from models.cuda.kernels.plain import draw

    draw(*args)


@begin.register_fake
def _begin_shape(*args: Any) -> tuple[Tensor, ...]:
    lengths, stopped = args[2:4]
    return (*(torch.empty_like(lengths) for _ in range(4)), torch.empty_like(stopped))


@draw.register_fake
def _draw_shape(*_: Any) -> None:
    return None


@norm.register_fake
def _norm_shape(x: Tensor, *_: Any) -> Tensor:
    return torch.empty_like(x)


@gated.register_fake
def _gated_shape(gate_up: Tensor, *_: Any) -> Tensor:
    return gate_up.new_empty(len(gate_up), gate_up.shape[1] // 2)


@store.register_fake
def _store_shape(qkv: Tensor, *others: Any) -> Tensor:
    return qkv.new_empty(len(qkv), others[-1], qkv.shape[2])


@attend.register_fake
def _attend_shape(queries: Tensor, *_: Any) -> Tensor:
    return queries.new_empty(len(queries), queries.shape[1] * queries.shape[2])

"""The kernels of a model, each as one operator of torch: see `gpu.kernels`."""

from typing import Final

import torch

from gpu.kernels import Kernel
from models.cuda.kernels import reference

_LAYERS: Final = "models.cuda.kernels.layers"

norm = Kernel.of(reference.norm, _LAYERS, lambda x, *_: torch.empty_like(x))
project = Kernel.of(
    reference.project,
    _LAYERS,
    lambda x, weight, _, __, activation, *___: x.new_empty(
        len(x), len(weight) // reference.halves(activation)
    ),
)
add_product = Kernel.of(reference.add_product, _LAYERS, lambda *_: None, ("total",))
store = Kernel.of(
    reference.store,
    _LAYERS,
    lambda qkv, _, keys, *__: qkv.new_empty(
        len(qkv), qkv.shape[1] - 2 * keys.shape[1], qkv.shape[2]
    ),
    ("keys", "values"),
)
attend = Kernel.of(
    reference.attend,
    "models.cuda.kernels.attention",
    lambda queries, *_: torch.empty_like(queries).flatten(1),
)

KERNELS: Final = (norm, project, add_product, store, attend)

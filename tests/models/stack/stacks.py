"""A small stack of random weights, and the passes over whole sequences that any others must be."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from models.config import ModelConfig
from models.stack.paged_cache import PagePool
from models.stack.transformer import Transformer

CPU = torch.device("cpu")
CONFIG = ModelConfig(width=64, layers=3, heads=8, kv_heads=2, ffn=96, phonemes=("a",))


def make_stack(**changes: Any) -> Transformer:
    """Return weights large enough for attention to prefer something."""
    torch.manual_seed(0)
    stack = Transformer(CONFIG.model_copy(update=changes))
    for parameter in stack.parameters():
        if parameter.ndim == 2:
            torch.nn.init.normal_(parameter, std=0.15)
        else:
            torch.nn.init.uniform_(parameter, 0.5, 1.5)
    return stack.eval().requires_grad_(False)


def vectors(count: int, seed: int = 0) -> Tensor:
    return torch.randn(count, CONFIG.width, generator=torch.Generator().manual_seed(seed))


def pool_of(pages: int, dtype: torch.dtype = torch.float32) -> PagePool:
    return PagePool(CONFIG, pages, dtype=dtype, device=CPU)


def uncached(
    stack: Transformer, x: Tensor, ranks: Tensor | None = None, layers: Sequence[int] = ()
) -> Tensor:
    """Return ``[S, (1 + n) * D]`` of one sequence in a single pass, the outputs of layers last."""
    positions = torch.arange(len(x))[None]
    found: list[Tensor] = []
    hooks = [
        stack.blocks[layer].register_forward_hook(lambda *given: found.append(given[-1]))
        for layer in layers
    ]
    hidden: Tensor = stack(x[None], positions, None if ranks is None else ranks[None])
    for hook in hooks:
        hook.remove()
    return torch.cat([hidden, *found], -1)[0]


def scores_of(stack: Transformer, x: Tensor, ranks: Tensor, layer: int) -> Tensor:
    """Return the scaled scores ``[heads, S]`` of the last position in a layer, in float64."""
    places = torch.arange(len(x))
    cos, sin = stack.cos[places], stack.sin[places]
    hidden = ranks[None] > ranks[:, None]
    bias = torch.zeros(hidden.shape).masked_fill(hidden, -torch.inf)[None, None]
    for block in stack.blocks[:layer]:
        x = block(x[None], cos[None], sin[None], bias)[0]
    block = stack.blocks[layer]
    queries, keys, _ = block.attention.project(block.attention_norm(x), cos, sin)
    keys = keys.repeat_interleave(CONFIG.heads // CONFIG.kv_heads, 1).double()
    scores = torch.einsum("hd,shd->hs", queries[-1].double(), keys)
    return torch.div(scores, CONFIG.head_dim**0.5)

"""A small stack of random weights, large enough for attention to prefer something."""

import torch
from torch import Tensor

from models.config import ModelConfig
from models.stack.transformer import Transformer

CONFIG = ModelConfig(width=64, layers=3, heads=8, kv_heads=2, ffn=96, phonemes=("a",))


def make_stack() -> Transformer:
    torch.manual_seed(0)
    stack = Transformer(CONFIG)
    for parameter in stack.parameters():
        if parameter.ndim == 2:
            torch.nn.init.normal_(parameter, std=0.15)
    return stack.eval().requires_grad_(False)


def vectors(count: int, seed: int = 0) -> Tensor:
    return torch.randn(count, CONFIG.width, generator=torch.Generator().manual_seed(seed))

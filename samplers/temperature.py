"""Temperatures: how sharply the logits speak."""

import torch
from torch import Tensor

from samplers.draw import greedy

# Below it float32 logits cannot be told apart anyway; it keeps quotients finite.
COLDEST = 1e-6
LARGEST = 1e38


def scale(logits: Tensor, temperature: Tensor) -> Tensor:
    """Divide ``(B, V)`` logits by a ``(B, 1)`` temperature; 1 changes nothing, not even a bit."""
    return (logits / temperature.clamp(min=COLDEST)).clamp_(max=LARGEST)


def only_best(logits: Tensor) -> Tensor:
    """Remove all but the best code (the lowest id on a tie) from ``(B, V)`` logits."""
    ids = torch.arange(logits.shape[-1], device=logits.device)
    return logits.masked_fill(ids != greedy(logits)[:, None], -torch.inf)

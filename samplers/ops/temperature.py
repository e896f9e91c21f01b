"""Temperatures: fixed, dynamic and greedy."""

import torch
from torch import Tensor

from samplers.ops.filters import entropy
from samplers.ops.sample import greedy

# Below it float32 logits cannot be told apart anyway; it keeps quotients finite.
COLDEST = 1e-6
LARGEST = 1e38


def scale(logits: Tensor, temperature: Tensor) -> Tensor:
    """Divide ``(B, V)`` logits by a ``(B, 1)`` temperature; 1 is exactly the identity."""
    return (logits / temperature.clamp(COLDEST, LARGEST)).clamp_(max=LARGEST)


def only_best(logits: Tensor) -> Tensor:
    """Exclude all but the best code (the lowest id on a tie) of ``(B, V)`` logits."""
    ids = torch.arange(logits.shape[-1], device=logits.device)
    return logits.masked_fill(ids != greedy(logits)[:, None], -torch.inf)


def unified(logits: Tensor, conf: Tensor, quad: Tensor) -> Tensor:
    """Turn each log-probability l into l * (1 + conf * H) - quad * l^2, H the entropy in nats.

    Source: Unified of NovelAI and of Zonos (`apply_unified`), whose *linear* is a temperature of
    1 / linear here, where their *conf* and *quad* are linear times ours. 0 and 0 change no bit.
    """
    log_probs = logits.log_softmax(-1).nan_to_num_(nan=0.0)
    return logits + log_probs * (conf * entropy(log_probs) - quad * log_probs)


def dynamic_sigmoid(
    logits: Tensor, low: Tensor, high: Tensor, slope: Tensor, center: Tensor
) -> Tensor:
    """Return a row's temperature by its best code's probability: ``low`` where that is certain.

    Halfway at ``center``, and at least 0.01. Source: koboldcpp PR 464 by kalomaze.
    """
    best = logits.softmax(-1).amax(-1, keepdim=True).nan_to_num_(nan=0.0)
    return (high - (high - low) * torch.sigmoid(slope * (best - center))).clamp_(min=0.01)


def dynamic_entropy(logits: Tensor, low: Tensor, high: Tensor, exponent: Tensor) -> Tensor:
    """Return a row's temperature by (entropy / highest possible entropy)^exponent.

    At least 0.01; 1 for a row with a single code left. Source: koboldcpp PR 600; llama.cpp.
    """
    alive = (logits > -torch.inf).sum(-1, keepdim=True)
    share = (entropy(logits) / alive.clamp(min=2).log()).clamp_(0, 1)
    temperature = low + (high - low) * share.pow(exponent)
    return torch.where(alive > 1, temperature.clamp_(min=0.01), 1.0)

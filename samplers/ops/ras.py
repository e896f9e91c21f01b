"""Repetition-aware sampling: sample from a nucleus, and again if that code repeats too soon.

Source: VALL-E 2, arXiv:2406.05370, algorithm 1; the mask on the second sample is CosyVoice's.
"""

import torch
from torch import Tensor

from samplers.ops import filters


def nucleus_floor(ordered: Tensor, top_p: Tensor, top_k: Tensor) -> Tensor:
    """Return the last logit of the likeliest codes, at most ``top_k``, that sum to ``top_p``."""
    return torch.maximum(filters.top_p_floor(ordered, top_p), filters.top_k_floor(ordered, top_k))


def repeats(codes: Tensor, recent: Tensor, window: Tensor, tau: Tensor) -> Tensor:
    """Return whether ``codes`` ``(B, 1)`` occur so often that a second sample is needed, as bool.

    That is at least tau * window times among the newest ``window`` codes, and at least once.
    """
    distance = torch.arange(1, recent.shape[1] + 1, device=recent.device)
    copies = ((recent == codes) & (distance <= window)).sum(-1, keepdim=True)
    # 10 * 0.1 is above 1 in float32.
    return (copies > 0) & (copies >= window * tau - 1e-4)


def fallback(logits: Tensor, codes: Tensor, mask_first: Tensor) -> Tensor:
    """Return the logits of the second sample, without the first code where ``mask_first``.

    ``logits`` are those before `nucleus_floor`; a row with no other code keeps the first.
    """
    alone = (logits > -torch.inf).sum(-1, keepdim=True) <= 1
    masked = logits.scatter(1, codes, -torch.inf)
    return torch.where(mask_first & ~alone, masked, logits)

"""Repetition-aware sampling: draw from a nucleus, and again if that code repeats too soon.

Source: VALL-E 2, arXiv:2406.05370, algorithm 1; the mask on the second draw is CosyVoice's.
"""

import torch
from torch import Tensor

from samplers.ops import filters


def nucleus_floor(ordered: Tensor, top_p: Tensor, top_k: Tensor) -> Tensor:
    """Return the last logit of the likeliest codes that sum to ``top_p``, at most ``top_k``.

    Args:
        ordered: ``(B, V)`` of `samplers.ops.filters.descending`.
        top_p: ``(B, 1)`` float32; 0 keeps one code, infinity (not 1) all.
        top_k: ``(B, 1)`` int64; V or more keeps all.

    Returns:
        ``(B, 1)``.
    """
    return torch.maximum(filters.top_p_floor(ordered, top_p), filters.top_k_floor(ordered, top_k))


def repeats(codes: Tensor, recent: Tensor, window: Tensor, tau: Tensor) -> Tensor:
    """Return whether a code occurs in the window so often that a second draw is needed.

    Args:
        codes: ``(B, 1)`` int64.
        recent: ``(B, W)`` int64, newest first, -1 before the beginning.
        window: ``(B, 1)`` int64, how many of them count.
        tau: ``(B, 1)`` float32 share of the window.

    Returns:
        ``(B, 1)`` bool: at least window * tau copies, and at least one.
    """
    distance = torch.arange(1, recent.shape[1] + 1, device=recent.device)
    copies = ((recent == codes) & (distance <= window)).sum(-1, keepdim=True)
    # 10 * 0.1 is above 1 in float32.
    return (copies > 0) & (copies >= window * tau - 1e-4)


def fallback(logits: Tensor, codes: Tensor, mask_first: Tensor) -> Tensor:
    """Return the logits of the second draw: all codes, without the first one if asked.

    Args:
        logits: ``(B, V)`` float32, before `nucleus_floor`.
        codes: ``(B, 1)`` int64, of the first draw.
        mask_first: ``(B, 1)`` bool.

    Returns:
        ``(B, V)``; a row with no other code keeps the first.
    """
    alone = (logits > -torch.inf).sum(-1, keepdim=True) <= 1
    masked = logits.scatter(1, codes, -torch.inf)
    return torch.where(mask_first & ~alone, masked, logits)

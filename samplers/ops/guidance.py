"""Classifier-free guidance: from the unconditional to the conditional logits, and beyond."""

import torch
from torch import Tensor


def guide(positive: Tensor, negative: Tensor, strength: Tensor, rescale: Tensor) -> Tensor:
    """Extrapolate from the unconditional to the conditional logits.

    Args:
        positive: ``(B, N, V)`` float32, conditional, aligned at the end; N is 1 for level 0.
        negative: ``(B, N, V)`` float32, unconditional.
        strength: ``(B,)`` float32; 1 is the conditional row itself.
        rescale: ``(B,)`` float32 in [0, 1]: how much of the conditional spread to restore.

    Returns:
        ``(B, N, V)``.

    Source: Ho and Salimans 2022, arXiv:2207.12598; the rescale is that of Lin et al. 2023,
    arXiv:2305.08891, over all N * V entries of a row.
    """
    share, strength = rescale[:, None, None], strength[:, None, None]
    guided = negative + (positive - negative) * strength
    spread = guided.flatten(1).std(1)[:, None, None]
    ratio = positive.flatten(1).std(1)[:, None, None] / spread
    ratio = torch.where(spread > 0, ratio, 1.0)
    return guided * (share * ratio + (1 - share))


def guide_frames(positive: Tensor, negative: Tensor, strength: Tensor, rescale: Tensor) -> Tensor:
    """Guide the frames of a finer level, each on its own.

    The spread to restore is that of the frame's own logits, where the source takes it over all
    frames: so a code does not depend on later frames, and chunks give the same codes as the whole.

    Args:
        positive: ``(B, T, V)`` float32, conditional.
        negative: ``(B, T, V)`` float32, unconditional.
        strength: ``(B,)`` float32; see `guide`.
        rescale: ``(B,)`` float32; see `guide`.

    Returns:
        ``(B, T, V)``.
    """
    frames = positive.shape[1]
    knobs = (knob[:, None].expand(-1, frames).reshape(-1) for knob in (strength, rescale))
    flat = (logits.flatten(0, 1)[:, None] for logits in (positive, negative))
    return guide(*flat, *knobs).view(positive.shape)

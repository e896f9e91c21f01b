"""Classifier-free guidance: from the unconditional to the conditional logits, and beyond."""

import torch
from torch import Tensor


def guide(positive: Tensor, negative: Tensor, strength: Tensor, rescale: Tensor) -> Tensor:
    """Extrapolate from the unconditional to the conditional logits, both ``(B, N, V)`` float32.

    ``strength`` ``(B,)`` of 1 gives the conditional ones; ``rescale`` ``(B,)`` in [0, 1] is how
    much of their standard deviation over all N * V entries is restored.

    Source: Ho and Salimans 2022, arXiv:2207.12598; the rescale, Lin et al. 2023, arXiv:2305.08891.
    """
    share = rescale[:, None, None]
    strength = strength[:, None, None]
    guided = negative + (positive - negative) * strength
    spread = guided.flatten(1).std(1)[:, None, None]
    ratio = positive.flatten(1).std(1)[:, None, None] / spread
    ratio = torch.where(spread > 0, ratio, 1.0)
    return guided * (share * ratio + (1 - share))


def guide_frames(positive: Tensor, negative: Tensor, strength: Tensor, rescale: Tensor) -> Tensor:
    """Guide the frames of a NAR level, ``(B, T, V)``, each on its own; see `guide`.

    The source restores the deviation over all frames. Here it is that of the frame's own logits: so
    a code does not depend on later frames, and chunks give the same codes as the whole.
    """
    frames = positive.shape[1]
    knobs = (knob[:, None].expand(-1, frames).reshape(-1) for knob in (strength, rescale))
    flat = (logits.flatten(0, 1)[:, None] for logits in (positive, negative))
    return guide(*flat, *knobs).view(positive.shape)

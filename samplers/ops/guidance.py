"""Classifier-free guidance: away from what the model says without its condition."""

import torch
from torch import Tensor

from samplers.ops.bounds import within


def guide(positive: Tensor, negative: Tensor, strength: Tensor, rescale: Tensor) -> Tensor:
    """Extrapolate from the unconditional to the conditional logits.

    Args:
        positive: ``(B, N, V)`` float32 with the condition, aligned at the end; N is 1 in the AR.
        negative: ``(B, N, V)`` float32 without it.
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


def guide_frames(positive: Tensor, negative: Tensor, strength: float, rescale: float) -> Tensor:
    """Guide the frames of a finer level, each by itself.

    The spread to restore is that of the frame's own logits, where the source takes it over all
    frames: a code then does not depend on later frames, and a stream gives the codes of the whole.

    Args:
        positive: ``(T, V)`` float32 with the condition.
        negative: ``(T, V)`` float32 without it.
        strength: 1 is the conditional row itself; more than float32 holds is the most that it does.
        rescale: In [0, 1]: how much of the conditional spread to restore.

    Returns:
        ``(T, V)``.
    """
    frames = len(positive)
    knobs = within(strength), rescale
    strengths, rescales = (positive.new_full((frames,), knob) for knob in knobs)
    return guide(positive[:, None], negative[:, None], strengths, rescales)[:, 0]

"""Masked decoding of a level in several passes: how many frames stay masked, and which."""

import math

import torch
from torch import Tensor


def schedule(length: int, passes: int) -> list[int]:
    """How many frames are masked before each pass: a quarter of a cosine, from all to one.

    Args:
        length: Frames.
        passes: Denoising passes.

    Returns:
        One count a pass, at least 1 and falling by one a pass at least.

    Source: MaskGIT, arXiv:2202.04200, with vall-e's bounds.
    """
    return [
        max(1, min(int(math.cos(progress * math.pi / 2) * length), length - place))
        for place, progress in enumerate(progress_of(passes))
    ]


def progress_of(passes: int) -> list[float]:
    """How far along each pass is, from 0 to 1; the temperature falls by it."""
    return [place / (passes - 1) if passes > 1 else 0.0 for place in range(passes)]


def least_certain(scores: Tensor, count: int) -> Tensor:
    """Which frames to mask again: the ``count`` with the lowest score, ``(T,)`` bool.

    Args:
        scores: ``(T,)`` float32, the probability of each frame's code.
        count: How many.

    Returns:
        ``(T,)`` bool; of equal scores the earliest.
    """
    order = scores.sort(stable=True).indices
    return torch.zeros_like(scores, dtype=torch.bool).scatter(0, order[:count], True)

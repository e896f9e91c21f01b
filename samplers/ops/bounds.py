"""Bounds of the numbers that tensors hold: knobs may be larger than float32 or int64 allow."""

import math

import torch

ALL = 2**62
"""A window or range that holds everything."""

_LARGEST = torch.finfo(torch.float32).max


def within(value: float) -> float:
    """Return the nearest number that a float32 or int64 tensor can hold; infinity stays."""
    if isinstance(value, int):
        return max(-ALL, min(value, ALL))
    return value if math.isinf(value) else max(-_LARGEST, min(value, _LARGEST))

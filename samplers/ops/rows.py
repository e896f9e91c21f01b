"""The rows of dataclasses of tensors, and the bounds of the numbers that tensors hold."""

import math
from dataclasses import fields, replace
from typing import Any, Self, cast

import torch
from torch import Tensor

ALL = 2**62
"""A window or range that holds everything."""

LARGEST_LOGIT = 1e30
"""The largest logit: infinity would leave no other code."""

_LARGEST = torch.finfo(torch.float32).max


def within(value: float) -> float:
    """Return the nearest number that a float32 or int64 tensor can hold; infinity stays."""
    if isinstance(value, int):
        return max(-ALL, min(value, ALL))
    return value if math.isinf(value) else max(-_LARGEST, min(value, _LARGEST))


def sanitise(logits: Tensor) -> Tensor:
    """Return logits as a float32 copy with NaN as -inf and +inf as `LARGEST_LOGIT`."""
    clean = logits.to(torch.float32).nan_to_num(
        nan=-torch.inf, posinf=LARGEST_LOGIT, neginf=-torch.inf
    )
    return clean.clamp_(max=LARGEST_LOGIT)


class Rows:
    """A base of dataclasses whose fields are tensors ``(B, ...)``, such dataclasses, or None."""

    def take(self, rows: Tensor) -> Self:
        """Return some rows, by an ``(n,)`` int64 index; one may occur twice."""
        own = cast(Any, self)
        taken: dict[str, Any] = {}
        for field in fields(own):
            value = getattr(own, field.name)
            if field.init and isinstance(value, Tensor):
                taken[field.name] = value.index_select(0, rows)
            elif isinstance(value, Rows):
                taken[field.name] = value.take(rows)
        return cast(Self, replace(own, **taken))

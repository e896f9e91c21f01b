"""The params of a batch's rows, read into tensors when the rows are admitted."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from samplers.knobs.conflicts import FEATURES, RANDOM
from samplers.knobs.params import SamplingParams

ALL = 2**62
"""A window or range that holds everything."""

_LARGEST = torch.finfo(torch.float32).max


def within(value: float) -> float:
    """The number nearest to a finite one that tensors of float32 and int64 can hold."""
    if isinstance(value, int):
        return max(-ALL, min(value, ALL))
    # What is infinite was not asked for: it is the neutral value of a step.
    return value if math.isinf(value) else max(-_LARGEST, min(value, _LARGEST))


def on(feature: str, params: SamplingParams) -> bool:
    """Whether a feature of `samplers.knobs.conflicts` acts; greedy beats what is random."""
    beaten = feature in RANDOM and FEATURES["greedy"].on(params)
    return FEATURES[feature].on(params) and not beaten


@dataclass(frozen=True)
class BatchParams:
    """What the builder of a step knows.

    Attributes:
        params: The rows' params.
        vocab_size: V.
        stop_token: The id that ends an utterance, or None.
        device: Where the tensors go.
    """

    params: Sequence[SamplingParams]
    vocab_size: int
    stop_token: int | None
    device: torch.device

    def on(self, feature: str, params: SamplingParams) -> bool:
        """Whether a feature acts in a row, as the function of this name says."""
        return on(feature, params)

    def any(self, feature: str) -> bool:
        """Whether any row has a feature on."""
        return any(self.on(feature, params) for params in self.params)

    def column(self, values: Sequence[float], dtype: torch.dtype | None = None) -> Tensor:
        """One value a row as ``(B, 1)``: float32, int64 or bool, as the values are.

        A number beyond what these hold counts as the largest that they do.
        """
        held = [within(value) for value in values]
        return torch.tensor(held, dtype=dtype, device=self.device)[:, None]

    def knob(self, feature: str, neutral: float) -> Tensor:
        """The knob of a feature as ``(B, 1)``, ``neutral`` in rows that have it off."""
        name = FEATURES[feature].knob
        return self.column([
            getattr(p, name) if self.on(feature, p) else neutral for p in self.params
        ])

    def flags(self, values: Sequence[bool]) -> Tensor | None:
        """One truth a row as ``(B, 1)`` bool; None if all are false."""
        return self.column(values) if any(values) else None

    @property
    def protected(self) -> Tensor | None:
        """Codes that no filter may take away, ``(B, V)`` bool: the stop, where it is protected."""
        if self.stop_token is None or not any(params.protect_stop for params in self.params):
            return None
        table = torch.zeros(len(self.params), self.vocab_size, dtype=torch.bool)
        table[:, self.stop_token] = torch.tensor([params.protect_stop for params in self.params])
        return table.to(self.device)

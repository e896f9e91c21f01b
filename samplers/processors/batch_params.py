"""The params of a batch's rows, read into tensors when the rows are admitted."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from samplers.knobs.features import FEATURES, is_on
from samplers.knobs.params import SamplingParams
from samplers.ops.bounds import within


@dataclass(frozen=True)
class BatchParams:
    """The B rows that a processor is built for; ``silent`` are codes of silence, or None."""

    params: Sequence[SamplingParams]
    vocab_size: int
    stop_token: int
    device: torch.device
    silent: Sequence[Tensor | None]

    def take(self, rows: Sequence[int]) -> "BatchParams":
        """Return the params of some rows."""
        return BatchParams(
            [self.params[row] for row in rows],
            self.vocab_size,
            self.stop_token,
            self.device,
            [self.silent[row] for row in rows],
        )

    def any(self, *features: str) -> bool:
        """Return whether any row has any of these features on."""
        return any(is_on(feature, params) for feature in features for params in self.params)

    def is_on(self, feature: str) -> list[bool]:
        """Return for each row whether it has a feature on."""
        return [is_on(feature, params) for params in self.params]

    def column(self, values: Sequence[float], dtype: torch.dtype | None = None) -> Tensor:
        """Return a value a row, ``(B, 1)``, or the nearest that float32, int64 or bool can hold."""
        held = [within(value) for value in values]
        return torch.tensor(held, dtype=dtype, device=self.device)[:, None]

    def knob(self, feature: str, neutral: float) -> Tensor:
        """Return the knob of a feature, ``(B, 1)``; ``neutral``, where off, changes nothing."""
        name = FEATURES[feature].knob
        return self.column([
            getattr(p, name) if is_on(feature, p) else neutral for p in self.params
        ])

    def flags(self, values: Sequence[bool]) -> Tensor | None:
        """Return one truth value a row as ``(B, 1)`` bool; None if all are false."""
        return self.column(values) if any(values) else None

    @property
    def protected(self) -> Tensor | None:
        """The codes that filters must keep, ``(B, V)`` bool: the stop, under `protect_stop`."""
        if not any(params.protect_stop for params in self.params):
            return None
        table = torch.zeros(len(self.params), self.vocab_size, dtype=torch.bool)
        table[:, self.stop_token] = torch.tensor([params.protect_stop for params in self.params])
        return table.to(self.device)

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
    """The rows that a processor is built for; B is their number.

    Attributes:
        params: Resolved params of each row.
        vocab_size: V.
        stop_token: The id that ends an utterance.
        device: Where the tensors are made.
        silent: The codes of silence of each row, ``(<= V,)`` bool, or None.
    """

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
        """Return one value a row as ``(B, 1)``: float32, int64 or bool, as the values are.

        A number that these cannot hold becomes the nearest that they can.
        """
        held = [within(value) for value in values]
        return torch.tensor(held, dtype=dtype, device=self.device)[:, None]

    def knob(self, feature: str, neutral: float) -> Tensor:
        """Return the knob of a feature as ``(B, 1)``.

        Args:
            feature: A key of `samplers.knobs.features.FEATURES`.
            neutral: Value in rows that have the feature off; it must change nothing exactly.
        """
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

"""Guidance in one row: the logits of the null condition, predicted from the conditional row.

Guidance draws from ``null + strength * (conditional - null)``, so without this a sequence takes two
rows of a batch: one that hears text and prompt, and one that hears neither. What is predicted is
near the second at low strengths, which a `models.config.NullHeadConfig` states.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from models.config import NullHeadConfig
from models.stack.batching import Batching


class NullLogits(nn.Module):
    """Gives the logits of rows, and what it predicts of their null condition."""

    def logits(
        self, states: Tensor, guided: Sequence[int] | slice, head: nn.Module, batching: Batching
    ) -> Tensor:
        """Return logits ``[R + n, V]`` float32, those of the null condition of n rows last.

        Args:
            states: ``[R, (1 + L) * D]`` float32: the last hidden state, and behind it what the
                layers gave that are read.
            guided: The n rows.
            head: The output head.
            batching: Of the rows of both.
        """
        raise NotImplementedError


class NullHead(NullLogits):
    """What the last hidden state of the null condition, and its logits, differ by.

    The corrected state goes through the model's own output head, which a step reads anyway; what
    that cannot give is a difference of low rank.
    """

    def __init__(self, width: int, vocabulary: int, spec: NullHeadConfig) -> None:
        super().__init__()
        features = width * (1 + len(spec.layers))
        self.norm = nn.LayerNorm(features)
        self.up = nn.Linear(features, spec.hidden)
        self.correction = nn.Linear(spec.hidden, width)
        self.narrow = nn.Linear(spec.hidden, spec.rank, bias=False)
        self.wide = nn.Linear(spec.rank, vocabulary)
        for last in (self.correction, self.wide):
            nn.init.zeros_(last.weight)
            nn.init.zeros_(last.bias)

    def forward(self, states: Tensor) -> Tensor:
        """Return differences ``[..., D + V]``, those of the hidden state first; see `logits`."""
        inner = F.gelu(self.up(self.norm(states)))
        return torch.cat([self.correction(inner), self.wide(self.narrow(inner))], -1)

    def logits(
        self, states: Tensor, guided: Sequence[int] | slice, head: nn.Module, batching: Batching
    ) -> Tensor:
        """Return the logits of rows and of the null condition; see `NullLogits`."""
        width = self.correction.out_features
        read = states[guided]
        differences = batching.run(self, read)
        corrected = read[:, :width] + differences[:, :width]
        logits = batching.run(head, torch.cat([states[:, :width], corrected])).float()
        logits[len(states) :] += differences[:, width:]
        return logits

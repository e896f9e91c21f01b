"""What each processor of a step did to the codes: for traces that tell the likeliest ones."""

from collections.abc import Mapping
from typing import Final, Self

import torch
from torch import Tensor

from samplers.ops.rows import Rows
from samplers.processors.entropix import Entropix
from samplers.processors.processor import LogitsProcessor
from samplers.processors.registry import FIXED, MOVABLE

SAMPLING: Final = "draw"
"""Mirostat, repetition-aware sampling, and what entropix samples again."""

_PROCESSORS: tuple[type[LogitsProcessor], ...] = (*FIXED, Entropix, *MOVABLE)

EFFECTS: Final = (*(one.features[0] for one in _PROCESSORS), SAMPLING)
"""The names of the effects: the knob that switches a processor on, its first."""


class Effects(Rows):
    """How processors moved the log-probabilities of V codes in B rows.

    ``nats`` are ``(B, V)`` float32 of each that ran in any row, -inf of a code that it
    excluded, 0 where it did nothing.
    """

    def __init__(self, rows: int, nats: Mapping[str, Tensor] | None = None) -> None:
        self._rows = rows
        self.nats = dict(nats or {})

    def note(self, name: str, before: Tensor, after: Tensor, rows: Tensor | None = None) -> None:
        """Note ``(n, V)`` logits before and after a processor, of some rows or of all."""
        moved = after.log_softmax(-1) - before.log_softmax(-1)
        moved = moved.nan_to_num(nan=0.0, neginf=-torch.inf)  # excluded before already
        if rows is not None:
            whole = self.nats.get(name, moved.new_zeros(self._rows, moved.shape[1]))
            moved = whole.index_copy(0, rows, moved)
        self.nats[name] = moved

    def take(self, rows: Tensor) -> Self:
        """Return those of some rows, by an ``(n,)`` int64 index."""
        taken = {name: nats.index_select(0, rows) for name, nats in self.nats.items()}
        return type(self)(len(rows), taken)

    def of(self, codes: Tensor) -> Tensor:
        """Return what each of `EFFECTS` did to codes ``(B, n)``, as ``(B, n, len(EFFECTS))``."""
        nothing = torch.zeros(codes.shape, device=codes.device)
        return torch.stack(
            [
                self.nats[name].gather(-1, codes) if name in self.nats else nothing
                for name in EFFECTS
            ],
            -1,
        )

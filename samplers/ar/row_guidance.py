"""Classifier-free guidance of those of some rows that ask for it."""

from collections.abc import Sequence

import torch
from torch import Tensor

from samplers.ar.state import RowInput
from samplers.knobs.features import is_guided
from samplers.ops.guidance import guide
from samplers.ops.rows import within


class RowGuidance:
    """Guides G of B rows, each with its own strength and rescale."""

    def __init__(self, rows: Sequence[RowInput], device: torch.device) -> None:
        guided = [place for place, row in enumerate(rows) if is_guided(row.params)]
        self._guided = torch.tensor(guided, device=device) if len(guided) < len(rows) else None
        knobs = [
            (within(rows[place].params.cfg_strength), rows[place].params.cfg_rescale)
            for place in guided
        ]
        self._knobs = torch.tensor(knobs, device=device).unbind(1) if guided else None

    def guide(self, own: Tensor, null: Tensor | None) -> Tensor:
        """Return ``(B, V)`` logits, guided by those without text ``(G, V)`` of guided rows."""
        if null is None or self._knobs is None:
            return own
        if self._guided is None:
            return guide(own[:, None], null[:, None], *self._knobs)[:, 0]
        with_text = own.index_select(0, self._guided)
        moved = guide(with_text[:, None], null[:, None], *self._knobs)[:, 0]
        return own.index_copy(0, self._guided, moved)

"""The draw of a finer level in a recorded function, by the numbers of its rows."""

from typing import NamedTuple

import torch
from torch import Tensor

from app.engine.sound.recorded.row import FRACTIONS
from samplers.nar import NarRow, NarRows, sample_nar_rows
from samplers.ops.guidance import guide


class LevelDraw(NamedTuple):
    """How all finer levels of some rows are drawn.

    Attributes:
        knobs: ``[B, levels - 1, len(NarRow)]`` int64.
        fractions: The same numbers as float64, of which `FRACTIONS` count.
        frame: ``[B]`` int64, index of each row's first frame.
        partner: ``[B]`` int64, the row that guides each; itself: none.
        strength: ``[B]`` float64, of guidance.
        rescale: ``[B]`` float64, of guidance.
        codebooks: ``[levels, V, D]``, level 0's first.
        light: Whether all rows are greedy without guidance.
    """

    knobs: Tensor
    fractions: Tensor
    frame: Tensor
    partner: Tensor
    strength: Tensor
    rescale: Tensor
    codebooks: Tensor
    light: bool

    def draw(self, level: int, logits: Tensor) -> Tensor:
        """Return the codes ``[B, T]`` int64 of a level, given its logits ``[B, T, V]``."""
        own = NarRows(
            *(
                self.fractions[:, level - 1, place].float()
                if field in FRACTIONS
                else self.knobs[:, level - 1, place]
                for place, field in enumerate(NarRow._fields)
            )
        )
        if not self.light:
            logits = self._guided(logits)
        return sample_nar_rows(
            logits, own, self.frame, self.codebooks[level], greedy_only=self.light
        )

    def _guided(self, logits: Tensor) -> Tensor:
        """Guide the frames of rows by those of their partners, each frame on its own."""
        frames = logits.shape[1]
        null = logits.index_select(0, self.partner)
        knobs = (
            knob.float()[:, None].expand(-1, frames).reshape(-1)
            for knob in (self.strength, self.rescale)
        )
        moved = guide(logits.flatten(0, 1)[:, None], null.flatten(0, 1)[:, None], *knobs)
        own = torch.arange(len(logits), device=logits.device)
        guided = (self.partner != own)[:, None, None]
        return torch.where(guided, moved.view(logits.shape), logits)

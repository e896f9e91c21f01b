"""The finer levels of a chunk of a batch of utterances: one function, called or recorded."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from samplers.nar import NarKind, sample_nar
from samplers.ops.guidance import guide_frames

Feed = Callable[[int, Tensor], Tensor]
"""The logits ``[R, T, V]`` of a level, given the codes ``[R, T, K]`` of which the lower levels are
known; see `models.valle`."""


class ChunkRows(NamedTuple):
    """R sequences of the next T frames of some utterances: one each, and with guidance one more."""

    given: Tensor  # ``[R, T, K]`` int64, codes that are not drawn, level 0 among them; -1 elsewhere
    knobs: Tensor  # ``[R, K - 1, 6]`` int64 of `samplers.nar.pack`
    frame: Tensor  # ``[R]`` int64, index of the first frame in its utterance
    owner: Tensor  # ``[R]`` int64, the row whose codes each is fed
    partner: Tensor  # ``[R]`` int64, the row that guides each; itself: none
    guidance: Tensor  # ``[R, 2]`` float64, strength and rescale


class DrawKind(NamedTuple):
    """What any of some rows needs; the others are drawn the same with it, only slower."""

    guided: bool  # whether rows have partners
    kept: bool  # whether codes of finer levels are given
    levels: Sequence[NarKind]  # of each finer level that is drawn


def draw_chunk(rows: ChunkRows, feed: Feed, codebooks: Tensor, kind: DrawKind) -> Tensor:
    """Return the codes ``[R, T, K]`` of some frames, level by level; -1 in levels not drawn.

    ``codebooks [K, V, D]`` are the codec's, for `nar_decision="mean"`; ``kind`` says what any row
    needs.
    """
    given = rows.given.index_select(0, rows.owner) if kind.guided else rows.given
    codes = given.clone()
    for level, own in enumerate(kind.levels, start=1):
        logits = feed(level, codes)
        if kind.guided:
            logits = _guided(logits, rows)
        drawn = sample_nar(logits, rows.knobs[:, level - 1], rows.frame, codebooks[level], own)
        if kind.guided:
            drawn = drawn.index_select(0, rows.owner)
        if kind.kept:
            drawn = torch.where(given[..., level] >= 0, given[..., level], drawn)
        codes[..., level].copy_(drawn)
    return codes


def _guided(logits: Tensor, rows: ChunkRows) -> Tensor:
    """Guide rows by their partners."""
    null = logits.index_select(0, rows.partner)
    moved = guide_frames(logits, null, *rows.guidance.float().unbind(1))
    own = torch.arange(len(logits), device=logits.device)
    return torch.where((rows.partner != own)[:, None, None], moved, logits)

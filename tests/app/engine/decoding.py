"""An utterance decoded to its codes, with no sound: what the service does, driven by a test."""

from dataclasses import dataclass
from time import perf_counter

import torch
from torch import Tensor

from app.engine.decode import LevelZero, OnFrame
from app.engine.finer import finer_levels
from app.engine.job import Backtrack, FinishReason, TraceColumns
from app.engine.piece import Piece
from models.prefix_cache import PrefixCache
from models.valle import Valle


@dataclass(frozen=True, slots=True)
class Decoded:
    """One utterance as codes ``[T, K]`` int64, why it ended, and where the seconds went.

    K is fewer than the model's levels if `nar_levels` asks for fewer, or the job was cancelled.
    The trace is there if the piece asked for it.
    """

    codes: Tensor
    finish_reason: FinishReason
    ar_s: float
    nar_s: float
    trace: TraceColumns | None = None
    backtracks: tuple[Backtrack, ...] = ()


def decode_utterance(
    model: Valle,
    codebooks: Tensor,
    piece: Piece,
    on_frame: OnFrame,
    prefixes: PrefixCache | None = None,
) -> Decoded:
    """Decode one utterance; level 0 alone if it was cancelled."""
    started_s = perf_counter()
    prefixes = PrefixCache(model) if prefixes is None else prefixes
    level_0 = LevelZero(model, piece, on_frame, prefixes)
    finer = finer_levels(model, codebooks, piece, prefixes)
    codes = [finer.nothing]
    for frames in level_0:
        codes += finer.push(frames)
    if level_0.finish_reason == "cancelled":
        codes = [level_0.codes[:, None]]
    else:
        codes += finer.push(level_0.codes[:0], ended=True)
    nar_s = perf_counter() - started_s - level_0.work_s
    return Decoded(
        torch.cat(codes),
        level_0.finish_reason,
        level_0.work_s,
        nar_s,
        level_0.trace,
        level_0.backtracks,
    )

"""What goes from level 0 to whoever makes sound of it."""

from dataclasses import dataclass

from torch import Tensor

from app.engine.job import Backtrack, FinishReason, RankedTake, TraceColumns
from app.engine.piece import Piece


@dataclass(frozen=True, slots=True)
class Ending:
    """How level 0 of an utterance ended.

    Args:
        finish_reason: Why.
        last: Nothing of the job follows.
        cut: Something would, had the job's limit left room for it.
        backtracks: Every time that the utterance was taken back.
        trace: What was seen and done at every token, if the job asks for it.
        takes: All ways that it was drawn in, if there were several.
        ar_s: Seconds of the steps that the utterance took part in.
    """

    finish_reason: FinishReason
    last: bool
    cut: bool = False
    backtracks: tuple[Backtrack, ...] = ()
    trace: TraceColumns | None = None
    takes: tuple[RankedTake, ...] = ()
    ar_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Drawn:
    """Level 0 of an utterance, as far as it became final since the last time.

    Args:
        utterance: Its place in the plan; None: the job's limit left room for none.
        piece: What is spoken; None: a mere pause.
        codes: ``[n]`` int64, on the host; none where the utterance just begins.
        ending: There, if nothing of the utterance follows.
    """

    utterance: int | None
    piece: Piece | None
    codes: Tensor
    ending: Ending | None = None

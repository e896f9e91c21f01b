"""What AR has sampled of one utterance; the thread of AR alone reads and writes it.

The audio stage is told in messages: `app.engine.messages`.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from app.engine.errors import GenerationFailed
from app.engine.results import (
    FinishReason,
    RankedTake,
    SamplerMemory,
    TraceColumns,
    UtteranceResult,
)
from app.engine.utterance import ar_codes_of
from samplers.ar.backtrack import Backtrack


class ArUtterance:
    """Level 0 of one utterance, and what is told of it once it has ended.

    Attributes:
        memory: Of the sampler, if it has one that is worth keeping.
    """

    finish_reason: FinishReason | None = None  # None while it is sampled
    error: GenerationFailed | None = None  # what failed, if `finish_reason` is `error`
    backtracks: tuple[Backtrack, ...] = ()
    trace: TraceColumns | None = None  # of every token, if it was asked for
    ranked: tuple[RankedTake, ...] = ()  # each sequence, if several were sampled to their ends
    # The first frame behind the text, by the alignment, if it was followed
    spoken: int | None = None
    memory: SamplerMemory | None = None
    growths: Sequence[int] = ()  # the frames from which on more of its text was known

    def ar_codes(self, start: int = 0, end: int | None = None) -> Tensor:
        """Return ``[n]`` int64: the frames so far, or a slice of them, on the host."""
        raise NotImplementedError

    def fail(self, error: GenerationFailed) -> None:
        """End it with an error."""
        self.finish_reason = "error"
        self.error = error


class KnownUtterance(ArUtterance):
    """One of which nothing is sampled: of kept frames, or of none, as a pause is."""

    def __init__(
        self, reason: FinishReason, kept: UtteranceResult | None = None, *, traced: bool = False
    ) -> None:
        self.finish_reason = reason
        self.trace = {} if traced else None
        self._codes = torch.zeros(0, dtype=torch.int64)
        if kept is not None:
            self._codes = ar_codes_of(kept)
            self.backtracks = kept.backtracks
            self.growths = kept.growths
            self.memory = kept.memory

    def ar_codes(self, start: int = 0, end: int | None = None) -> Tensor:
        """Return the frames; see `ArUtterance`."""
        return self._codes[start:end]

"""One utterance's level 0 while it is drawn: what is there, what is final, how it ended.

Most are drawn in one way, an `app.engine.level_0.hypothesis.Hypothesis`. Those that are tried in
several ways at once are a kind of their own each: `app.engine.level_0.best_of`,
`app.engine.level_0.beam_search`, `app.engine.level_0.branching`.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from app.engine.errors import GenerationFailed
from app.engine.job import Backtrack, FinishReason, RankedTake, TraceColumns
from app.engine.level_0.hypothesis import Hypothesis
from app.engine.level_0.input_batch import InputBatch
from app.engine.utterance import UtteranceInput
from samplers.ar.trace import columns


class ArUtterance:
    """Level 0 of one utterance, as an `app.engine.level_0.runner.ArRunner` draws it.

    Attributes:
        inputs: What is spoken.
        takes: All ways that it may still go; the first stands for it.
        slots: Of the cache, that it holds.
        finish_reason: Why it ended; None while it goes on.
        error: What broke, if that was `error`.
        ranked: Where several ways were tried from beginning to end: what they were kept or not for.
    """

    weighs_codes = False
    """Whether the takes keep the log-probabilities of their codes."""

    def __init__(self, inputs: UtteranceInput, takes: Sequence[Hypothesis]) -> None:
        """Begin before the first frame.

        Args:
            inputs: What is spoken.
            takes: At least one.
        """
        self.inputs, self.takes = inputs, list(takes)
        self.slots = [slot for take in takes for slot in take.slots]
        self.finish_reason: FinishReason | None = None
        self.error: GenerationFailed | None = None
        self.ranked: tuple[RankedTake, ...] = ()
        self._device = takes[0].conditions[0].first.hidden.device

    def __len__(self) -> int:
        """How many frames there are; some may still be taken back, or others take their place."""
        return len(self.takes[0].codes)

    @property
    def final(self) -> int:
        """How many of the first frames will not be taken back."""
        backtracker = self.takes[0].backtracker
        if backtracker is None or self.finish_reason is not None:
            return len(self)
        return backtracker.final

    @property
    def backtracks(self) -> tuple[Backtrack, ...]:
        """Every time that it was taken back."""
        backtracker = self.takes[0].backtracker
        return tuple(backtracker.taken) if backtracker else ()

    @property
    def trace(self) -> TraceColumns | None:
        """What was seen and done at every token, if the piece asks for it."""
        return columns(self.takes[0].records) if self.inputs.trace else None

    def codes(self, start: int = 0, end: int | None = None) -> Tensor:
        """Return ``[n]`` int64 of the frames that are there, or of some of them."""
        codes = self.takes[0].codes[start:end]
        return torch.tensor(codes, dtype=torch.int64, device=self._device)

    def settle(self, rows: InputBatch) -> None:  # noqa: ARG002  # the other kinds need it
        """See where it is after a step that all takes took part in.

        Args:
            rows: Where the takes are.
        """
        self.finish_reason = self.takes[0].finish_reason

    def fail(self, error: GenerationFailed) -> None:
        """End it because something broke."""
        self.finish_reason, self.error = "error", error

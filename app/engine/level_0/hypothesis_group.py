"""The hypotheses of one utterance: the base class, which has one, and what all kinds share.

Kinds that draw several side by side: `best_of`, `beam_search` and `branching`.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from app.engine.errors import GenerationFailed
from app.engine.job import Backtrack, FinishReason, RankedTake, SamplerMemory, TraceColumns
from app.engine.level_0.hypothesis import Hypothesis
from app.engine.level_0.input_batch import InputBatch
from app.engine.utterance import UtteranceInput
from samplers.ar.trace import columns


class HypothesisGroup:
    """Level 0 of one utterance while `app.engine.level_0.runner.ArRunner` draws it.

    Attributes:
        hypotheses: Those still considered; the first is the utterance's result so far.
        error: What failed, if `finish_reason` is `error`.
        ranked: The outcome of each hypothesis, where several were drawn to their ends.
        memory: Of the sampler, once it has ended, if it has one that is worth keeping.
    """

    keeps_logprobs = False
    """Whether hypotheses keep the log-probabilities of their codes, for ranking."""

    read_at_once = False
    """Whether the host decides after each step which hypotheses go on."""

    def __init__(self, inputs: UtteranceInput, hypotheses: Sequence[Hypothesis]) -> None:
        self.inputs, self.hypotheses = inputs, list(hypotheses)
        self.slots = [slot for hypothesis in hypotheses for slot in hypothesis.slots]
        self.paused = False
        self.finish_reason: FinishReason | None = None
        self.error: GenerationFailed | None = None
        self.ranked: tuple[RankedTake, ...] = ()
        self.memory: SamplerMemory | None = None

    def __len__(self) -> int:
        """Count the frames so far, those included that may still be rewound or replaced."""
        return len(self.hypotheses[0].codes)

    @property
    def final(self) -> int:
        """How many of the first frames cannot change any more."""
        backtracker = self.hypotheses[0].backtracker
        if backtracker is None or self.finish_reason is not None:
            return len(self.hypotheses[0].codes)
        return backtracker.final

    @property
    def backtracks(self) -> tuple[Backtrack, ...]:
        """Every backtrack so far, in order."""
        backtracker = self.hypotheses[0].backtracker
        return tuple(backtracker.taken) if backtracker else ()

    @property
    def trace(self) -> TraceColumns | None:
        """The trace of every token, if the utterance asks for one."""
        if not self.inputs.trace:
            return None
        return columns(self.hypotheses[0].records, top=self.inputs.top_logprobs)

    def codes(self, start: int = 0, end: int | None = None) -> Tensor:
        """Return ``[n]`` int64: the frames so far, or a slice of them, on the host."""
        return torch.tensor(self.hypotheses[0].codes[start:end], dtype=torch.int64)

    def update(self, batch: InputBatch) -> None:  # noqa: ARG002  # the other kinds need it
        """After a step, set `finish_reason`, and fork or drop hypotheses of the batch."""
        self.finish_reason = self.hypotheses[0].finish_reason

    def fail(self, error: GenerationFailed) -> None:
        """End the utterance with an error."""
        self.finish_reason, self.error = "error", error

"""The tensors of one step, and its result."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from torch import Tensor

from samplers.ar.trace import Record, log_prob_of, record, rescored
from samplers.ops import filters
from samplers.processors.draw import DrawResult
from samplers.processors.scores import Scores


@dataclass(frozen=True)
class StepResult:
    """The result of a step.

    Attributes:
        codes: ``(B,)`` int64; the stop where a row has ended.
        sources: The row that each row continues: itself, unless it is a beam.
        scores: ``(B,)`` float32 nats, the scores of beams; see `SamplerState.beam_scores`.
        alternatives: ``(B, n)`` int64: in a row that branches the code and the others to go on
            with, -1 where there are no more; all -1 elsewhere. None if no row may branch.
        alternative_records: With a trace: the step's record as it would be with the second column
            of ``alternatives``, the third, and so on.
    """

    codes: Tensor
    sources: Sequence[int]
    scores: Tensor
    alternatives: Tensor | None = None
    alternative_records: Sequence[Record] = ()


@dataclass
class StepTensors:
    """The tensors of a step at each of its stages, B rows each.

    Attributes:
        logits: As given.
        clean: Without NaN and infinity.
        own: The model's own, if the given ones were changed before.
        penalised: After bans and penalties; may be None without a trace.
        scores: After all processors.
        drawn: The draw.
    """

    logits: Tensor
    clean: Tensor
    own: Tensor | None
    penalised: Tensor | None
    scores: Scores
    drawn: DrawResult

    def take(self, rows: Tensor) -> "StepTensors":
        """Return the tensors of some rows.

        Args:
            rows: ``(n,)`` int64 index; a row may occur twice.
        """
        return StepTensors(
            self.logits.index_select(0, rows),
            self.clean.index_select(0, rows),
            None if self.own is None else self.own.index_select(0, rows),
            None if self.penalised is None else self.penalised.index_select(0, rows),
            self.scores.take(rows),
            self.drawn.take(rows),
        )

    def rescored(self, entry: Record, codes: Tensor) -> Record:
        """Return the record of the step as it would be with other codes ``(B,)``."""
        own = self.clean if self.own is None else filters.sanitise(self.own)
        return rescored(entry, codes, own, self.clean, self.drawn.logits)

    def alternatives(self, stopped: Tensor, stop_token: int) -> Tensor | None:
        """Return the codes to go on with in rows that branch, as in `StepResult`.

        Args:
            stopped: ``(B,)`` bool, rows that have ended.
            stop_token: Never an alternative.
        """
        alternatives, decision = self.drawn.alternatives, self.scores.decision
        if alternatives is None or decision is None:
            return None
        goes_on = decision.branched & ~stopped[:, None]
        return alternatives.masked_fill(~goes_on | (alternatives == stop_token), -1)

    def record(self, codes: Tensor, stop_token: int, *, alive: Tensor, empty: Tensor) -> Record:
        """Return the trace record of the step.

        Args:
            codes: ``(B,)`` int64, the codes that the step returns.
            stop_token: The id of the stop.
            alive: ``(B,)`` bool, rows that had not ended before.
            empty: ``(B,)`` bool, rows from which nothing could be drawn.
        """
        assert self.penalised is not None
        entry = record(
            self.logits, self.clean, self.penalised, self.scores, self.drawn, codes,
            stop_token=stop_token, alive=alive, empty=empty,
        )  # fmt: skip
        if self.own is None:
            return entry
        return replace(entry, logprob=log_prob_of(filters.sanitise(self.own), codes))

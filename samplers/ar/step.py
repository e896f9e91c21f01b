"""What a step of the chain saw, and what came of it."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from torch import Tensor

from samplers.ar.trace import Record, log_prob_of, record, retell
from samplers.ops import filters
from samplers.processors.draw import Drawn
from samplers.processors.scores import Scores


@dataclass(frozen=True)
class Stepped:
    """What came of a step.

    Attributes:
        codes: ``(B,)`` int64; the stop where a row has ended.
        sources: Which row each was before; its own number, but for beams.
        scores: ``(B,)`` float32 nats: of rows that are beams, see `SamplerState`.
        ways: ``(B, n)`` int64 in a row that branches, the code and others to go on with, -1 where
            there are no more; all -1 elsewhere. None if no row may branch.
        retold: Where there is a trace: its record with the second way's codes, the third's, ...
    """

    codes: Tensor
    sources: Sequence[int]
    scores: Tensor
    ways: Tensor | None = None
    retold: Sequence[Record] = ()


@dataclass
class Seen:
    """All that a step saw and made, `B` rows each.

    Attributes:
        logits: That entered it.
        clean: Those without NaN and infinity.
        own: The model's own.
        weighed: After bans and penalties.
        scores: After all steps.
        drawn: What came of the draw.
    """

    logits: Tensor
    clean: Tensor
    own: Tensor | None
    weighed: Tensor | None
    scores: Scores
    drawn: Drawn

    def take(self, rows: Tensor) -> "Seen":
        """That of some rows, by an ``(n,)`` int64 index; a row may be taken twice."""
        return Seen(
            self.logits.index_select(0, rows),
            self.clean.index_select(0, rows),
            None if self.own is None else self.own.index_select(0, rows),
            None if self.weighed is None else self.weighed.index_select(0, rows),
            self.scores.take(rows),
            self.drawn.take(rows),
        )

    def retell(self, entry: Record, codes: Tensor) -> Record:
        """Say of it what it would have been with other codes ``(B,)``."""
        own = self.clean if self.own is None else filters.sanitise(self.own)
        return retell(entry, codes, own, self.clean, self.drawn.logits)

    def ways(self, stopped: Tensor, stop_token: int) -> Tensor | None:
        """Return the codes to go on with in rows that branch, as in `Stepped`.

        Args:
            stopped: ``(B,)`` bool, rows that have ended.
            stop_token: With which no row goes on.
        """
        ways, decision = self.drawn.ways, self.scores.decision
        if ways is None or decision is None:
            return None
        goes_on = decision.branched & ~stopped[:, None]
        return ways.masked_fill(~goes_on | (ways == stop_token), -1)

    def record(self, codes: Tensor, stop_token: int, *, alive: Tensor, empty: Tensor) -> Record:
        """Note all of it.

        Args:
            codes: ``(B,)`` int64, what came of the draw in the end.
            stop_token: The id of the stop.
            alive: ``(B,)`` bool, rows that had not ended before.
            empty: ``(B,)`` bool, rows from which nothing could be drawn.
        """
        assert self.weighed is not None
        entry = record(
            self.logits, self.clean, self.weighed, self.scores, self.drawn, codes,
            stop_token=stop_token, alive=alive, empty=empty,
        )  # fmt: skip
        if self.own is None:
            return entry
        return replace(entry, logprob=log_prob_of(filters.sanitise(self.own), codes))

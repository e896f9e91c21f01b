"""Best of n: hypotheses drawn side by side to their ends, ranked, and one kept."""

from collections.abc import Sequence

from app.engine.job import RankedTake
from app.engine.level_0.hypothesis import Hypothesis
from app.engine.level_0.hypothesis_group import HypothesisGroup
from app.engine.level_0.input_batch import InputBatch
from samplers.ranking import oddity, rank


class BestOf(HypothesisGroup):
    """An utterance of `best_of` hypotheses; no frame is final before all have ended.

    Each has its own noise; that of the first is the noise of an utterance with one hypothesis.
    """

    keeps_logprobs = True

    @property
    def final(self) -> int:
        """How many of the first frames cannot change any more: none before one is chosen."""
        return 0 if self.finish_reason is None else len(self)

    def update(self, batch: InputBatch) -> None:
        """Free the rows of hypotheses that have ended; choose one when all have."""
        going = [one for one in self.hypotheses if one.finish_reason is None]
        if len(going) == len(self.hypotheses):
            return
        held = {slot for one in going for slot in one.slots}
        batch.remove([one for one in self.hypotheses if one.finish_reason is not None])
        batch.release([slot for slot in self.slots if slot not in held])
        self.slots = [slot for slot in self.slots if slot in held]
        if not going:
            self._choose()

    def _choose(self) -> None:
        """Keep the best: those that spoke to their stop first, then by rank; the empty last."""
        params, silent = self.inputs.params, self.inputs.silent_codes
        lengths = oddity([len(one.codes) for one in self.hypotheses])
        ranks = [
            rank(one.logprobs, one.codes, silent, params) - params.rank_length_penalty * odd
            for one, odd in zip(self.hypotheses, lengths, strict=True)
        ]

        def order_of(number: int) -> tuple[bool, bool, float]:
            one = self.hypotheses[number]
            return one.finish_reason != "stop", not one.codes, -ranks[number]

        order = sorted(range(len(ranks)), key=order_of)
        self.ranked = report(self.hypotheses, ranks, order[0])
        best = self.hypotheses[order[0]]
        self.hypotheses, self.finish_reason = [best], best.finish_reason


def report(
    hypotheses: Sequence[Hypothesis], scores: Sequence[float], kept: int
) -> tuple[RankedTake, ...]:
    """Report the outcome of hypotheses that have ended, with their scores, nats a code."""
    return tuple(
        RankedTake(score, len(one.codes), one.finish_reason, number == kept)
        for number, (one, score) in enumerate(zip(hypotheses, scores, strict=True))
        if one.finish_reason is not None
    )

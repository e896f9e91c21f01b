"""Best of several takes: drawn side by side to their ends, ranked, and one kept."""

from collections.abc import Sequence

from app.engine.job import RankedTake
from app.engine.level_0.hypothesis import Hypothesis
from app.engine.level_0.input_batch import InputBatch
from app.engine.level_0.utterance import ArUtterance
from samplers.ranking import oddity, rank


class BestOf(ArUtterance):
    """An utterance of which there are several takes; none is heard before all have ended.

    Each has noise of its own, and that of the first is what it would be alone.
    """

    weighs_codes = True

    @property
    def final(self) -> int:
        """How many frames are known to be kept: none, before one is chosen."""
        return 0 if self.finish_reason is None else len(self)

    def settle(self, rows: InputBatch) -> None:
        """Free the rows of takes that have ended, and choose when all have."""
        going = [take for take in self.takes if take.finish_reason is None]
        held = {slot for take in going for slot in take.slots}
        rows.leave([take for take in self.takes if take.finish_reason is not None])
        rows.release([slot for slot in self.slots if slot not in held])
        self.slots = [slot for slot in self.slots if slot in held]
        if not going:
            self._choose()

    def _choose(self) -> None:
        """Keep the best: one that ended by itself if there is any, then by rank, then the first."""
        params, silent = self.inputs.params, self.inputs.silent_codes
        lengths = oddity([len(take.codes) for take in self.takes])
        ranks = [
            rank(take.logprobs, take.codes, silent, params) - params.rank_length_penalty * odd
            for take, odd in zip(self.takes, lengths, strict=True)
        ]
        order = sorted(
            range(len(ranks)),
            key=lambda number: (self.takes[number].finish_reason != "stop", -ranks[number]),
        )
        self.ranked = report(self.takes, ranks, order[0])
        best = self.takes[order[0]]
        self.takes, self.finish_reason = [best], best.finish_reason


def report(
    takes: Sequence[Hypothesis], scores: Sequence[float], kept: int
) -> tuple[RankedTake, ...]:
    """Tell what became of several takes, of which that of number ``kept`` was kept."""
    told = []
    for number, (take, score) in enumerate(zip(takes, scores, strict=True)):
        assert take.finish_reason is not None
        told.append(RankedTake(score, len(take.codes), take.finish_reason, number == kept))
    return tuple(told)

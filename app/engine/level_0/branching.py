"""Entropix's branch: an unsure utterance goes on in several ways, and keeps the best."""

from collections.abc import Sequence

from app.engine.level_0.hypothesis import Alternative, Hypothesis
from app.engine.level_0.input_batch import InputBatch
from app.engine.level_0.utterance import ArUtterance
from app.engine.utterance import UtteranceInput
from samplers.ranking import rank


class Branching(ArUtterance):
    """An utterance that may go on in several ways for some frames; those are final afterwards."""

    weighs_codes = True

    def __init__(self, inputs: UtteranceInput, takes: Sequence[Hypothesis]) -> None:
        """Begin before the first frame.

        Args:
            inputs: What is spoken.
            takes: The one that begins, and as many as there may be beside it.
        """
        super().__init__(inputs, takes)
        self.takes, self._spare = list(takes[:1]), list(takes[1:])
        self._fork = 0  # where the ways part, while there are several

    @property
    def final(self) -> int:
        """How many of the first frames all ways have in common."""
        going = len(self.takes) > 1 and self.finish_reason is None
        return self._fork if going else len(self)

    def settle(self, rows: InputBatch) -> None:
        """Part where it branches, and keep the best way once all have ended or are long enough."""
        if others := self.takes[0].ways:
            self._part(rows, others)
        rows.leave([take for take in self.takes if take.finish_reason is not None])
        if len(self.takes) > 1:
            long_enough = self._fork + self.inputs.params.entropix_branch_frames
            if any(
                take.finish_reason is None and len(take.codes) < long_enough for take in self.takes
            ):
                return
            self._choose(rows)
        self.finish_reason = self.takes[0].finish_reason

    def _part(self, rows: InputBatch, others: Sequence[Alternative]) -> None:
        """Go on with the code that was drawn, and with others."""
        first = self.takes[0]
        self._fork = len(first.codes) - 1
        row = rows.takes.index(first)
        for number, way in enumerate(others[: len(self._spare)], 1):
            take = self._spare.pop()
            rows.fork(row, take, way.code, number)
            take.logprobs[-1] = way.logprob
            if way.record is not None:
                take.records[-1] = way.record
            self.takes.append(take)

    def _choose(self, rows: InputBatch) -> None:
        """Keep the way that says the best since they parted, of equals the first."""
        params, silent = self.inputs.params, self.inputs.silent_codes
        ranks = [
            rank(take.logprobs[self._fork :], take.codes, silent, params, start=self._fork)
            for take in self.takes
        ]
        best = self.takes[ranks.index(max(ranks))]
        losers = [take for take in self.takes if take is not best]
        rows.leave(losers)
        self._spare += losers
        self.takes = [best]

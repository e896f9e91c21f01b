"""Entropix's branch: at an uncertain step an utterance forks, and later keeps the best branch."""

from collections.abc import Sequence

from app.engine.level_0.hypothesis import Alternative, Hypothesis
from app.engine.level_0.hypothesis_group import HypothesisGroup
from app.engine.level_0.input_batch import InputBatch
from app.engine.utterance import UtteranceInput
from samplers.ranking import rank


class Branching(HypothesisGroup):
    """An utterance that may fork for `entropix_branch_frames` frames, final once one is kept."""

    keeps_logprobs = True
    read_at_once = True

    def __init__(self, inputs: UtteranceInput, hypotheses: Sequence[Hypothesis]) -> None:
        super().__init__(inputs, hypotheses)
        self.hypotheses, self._spare = list(hypotheses[:1]), list(hypotheses[1:])
        self._fork = 0  # the first frame in which the branches differ

    @property
    def final(self) -> int:
        """How many of the first frames cannot change: those that all branches have in common."""
        forked = len(self.hypotheses) > 1 and self.finish_reason is None
        return self._fork if forked else len(self)

    def update(self, batch: InputBatch) -> None:
        """Fork if there are alternatives; choose once all branches are long enough or ended."""
        if alternatives := self.hypotheses[0].alternatives:
            self._branch(batch, alternatives)
        batch.remove([one for one in self.hypotheses if one.finish_reason is not None])
        if len(self.hypotheses) > 1:
            enough = self._fork + self.inputs.params.entropix_branch_frames
            if any(
                one.finish_reason is None and len(one.codes) < enough for one in self.hypotheses
            ):
                return
            self._choose(batch)
        self.finish_reason = self.hypotheses[0].finish_reason

    def _branch(self, batch: InputBatch, alternatives: Sequence[Alternative]) -> None:
        """Continue with the code that was drawn and, in spare hypotheses, with alternatives."""
        first = self.hypotheses[0]
        self._fork = len(first.codes) - 1
        for number, alternative in enumerate(alternatives[: len(self._spare)], 1):
            branch = self._spare.pop()
            batch.fork(first, branch, alternative.code, number)
            branch.logprobs[-1] = alternative.logprob
            if alternative.record is not None:
                branch.records[-1] = alternative.record
            self.hypotheses.append(branch)

    def _choose(self, batch: InputBatch) -> None:
        """Keep the branch that ranks highest since the fork, the first of equals."""
        params, silent = self.inputs.params, self.inputs.silent_codes
        ranks = [
            rank(one.logprobs[self._fork :], one.codes, silent, params, start=self._fork)
            for one in self.hypotheses
        ]
        best = self.hypotheses[ranks.index(max(ranks))]
        losers = [one for one in self.hypotheses if one is not best]
        batch.remove(losers)
        self._spare += losers
        self.hypotheses = [best]

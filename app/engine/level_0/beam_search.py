"""Beam search: the most probable beginnings of an utterance are continued side by side."""

from collections.abc import Sequence

import torch
from torch import Tensor

from app.engine.job import STOPPED
from app.engine.level_0.best_of import report
from app.engine.level_0.hypothesis import Hypothesis
from app.engine.level_0.hypothesis_group import HypothesisGroup
from app.engine.level_0.input_batch import InputBatch
from app.engine.utterance import UtteranceInput
from samplers.ops.beam import final_score


class BeamSearch(HypothesisGroup):
    """An utterance of `beam_width` beams; no frame is final before the search has ended.

    A beam keeps its slots and rows to the end: a finished beam may be displaced by an active one.
    """

    read_at_once = True

    def __init__(self, inputs: UtteranceInput, hypotheses: Sequence[Hypothesis]) -> None:
        super().__init__(inputs, hypotheses)
        for hypothesis in self.hypotheses[1:]:
            hypothesis.score = -torch.inf

    @property
    def final(self) -> int:
        """How many of the first frames cannot change any more: none before the search has ended."""
        return 0 if self.finish_reason is None else len(self)

    def update(self, batch: InputBatch) -> None:
        """End the search once no active beam can score higher than the best finished one."""
        beams = [one for one in self.hypotheses if one.score > -torch.inf]
        ended = [one for one in beams if one.finish_reason is not None]
        active = [one for one in beams if one.finish_reason is None]
        if not ended:
            return
        scores = self._scores([one.score for one in ended], [_tokens(one) for one in ended])
        # A beam's log-probability only falls, so its best score is today's at the greatest length.
        longest = [self.inputs.max_frames] * len(active)
        bounds = self._scores([one.score for one in active], longest)
        if active and bounds.max() > scores.max():
            return
        best = int(scores.argmax())
        batch.remove(self.hypotheses)
        self.ranked = report(ended, scores.tolist(), best)
        self.hypotheses, self.finish_reason = [ended[best]], ended[best].finish_reason

    def _scores(self, scores: Sequence[float], tokens: Sequence[int]) -> Tensor:
        """Return ``[n]`` log-probabilities normalised by length; see `final_score`."""
        power = torch.tensor(self.inputs.params.beam_length_power, dtype=torch.float64)
        return final_score(torch.tensor(scores, dtype=torch.float64), torch.tensor(tokens), power)


def _tokens(hypothesis: Hypothesis) -> int:
    """Count a beam's tokens: its frames, and the stop if it drew one."""
    return len(hypothesis.codes) + (hypothesis.finish_reason in STOPPED)

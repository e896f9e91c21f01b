"""Beam search: the likeliest beginnings of an utterance go on side by side until one has won."""

from collections.abc import Sequence

import torch
from torch import Tensor

from app.engine.level_0.best_of import report
from app.engine.level_0.hypothesis import Hypothesis
from app.engine.level_0.input_batch import InputBatch
from app.engine.level_0.utterance import ArUtterance
from app.engine.utterance import UtteranceInput
from samplers.ops.beam import final_score


class BeamSearch(ArUtterance):
    """An utterance that is searched for; nothing is heard before the search has ended.

    Its beams keep their slots and rows to the end: what ends may be displaced by what goes on.
    """

    def __init__(self, inputs: UtteranceInput, takes: Sequence[Hypothesis]) -> None:
        """Begin before the first frame.

        Args:
            inputs: What is spoken.
            takes: As many as the search is wide; one of them is a beam already.
        """
        super().__init__(inputs, takes)
        for take in self.takes[1:]:
            take.score = -torch.inf

    @property
    def final(self) -> int:
        """How many frames are known to be kept: none, before the search has ended."""
        return 0 if self.finish_reason is None else len(self)

    def settle(self, rows: InputBatch) -> None:
        """End the search when no beam that goes on can overtake the best that has ended."""
        beams = [take for take in self.takes if take.score > -torch.inf]
        ended = [take for take in beams if take.finish_reason is not None]
        going = [take for take in beams if take.finish_reason is None]
        if not ended:
            return
        scores = self._scores([take.score for take in ended], [_tokens(take) for take in ended])
        # A beam can become no likelier, only longer: one token a frame that there may be.
        bounds = self._scores([take.score for take in going], [self.inputs.max_frames] * len(going))
        if going and bounds.max() > scores.max():
            return
        best = int(scores.argmax())
        rows.leave(self.takes)
        self.ranked = report(ended, scores.tolist(), best)
        self.takes, self.finish_reason = [ended[best]], ended[best].finish_reason

    def _scores(self, scores: Sequence[float], tokens: Sequence[int]) -> Tensor:
        """Return what beams are ranked by, ``[n]``."""
        power = torch.tensor(self.inputs.params.beam_length_power, dtype=torch.float64)
        return final_score(torch.tensor(scores, dtype=torch.float64), torch.tensor(tokens), power)


def _tokens(take: Hypothesis) -> int:
    """Return how many tokens a beam has: its frames, and the stop if it drew that."""
    return len(take.codes) + (take.finish_reason == "stop")

"""Drawing again: what entropix does with a code that was drawn, row by row.

*resample* sets it aside and draws another: P(j) = sum_i p_i p_j / (1 - p_i). *Candidates* draw
several and take the likeliest: with the codes in ascending order and C their cumulated
probabilities, P(i) = C_i^n - C_(i-1)^n.
"""

import torch
from torch import Tensor

from samplers.ops import ras
from samplers.ops.draw import Draw, categorical, greedy
from samplers.processors.batch_params import BatchParams
from samplers.processors.scores import Scores


class Redraw:
    """The second thoughts of the rows that have entropix on; the others keep their codes."""

    def __init__(self, rows: BatchParams) -> None:
        """Read the rows' params.

        Args:
            rows: The rows.
        """
        thinking = [p for p in rows.params if rows.on("entropix", p)]
        self._resamples = any(p.entropix_action == "resample" for p in thinking)
        self._most = max((p.entropix_adaptive_candidates for p in thinking), default=1)

    def __call__(self, scores: Scores, codes: Tensor, logits: Tensor) -> tuple[Tensor, Tensor]:
        """Draw again where entropix decided so.

        Args:
            scores: With the decision.
            codes: ``(B,)`` int64, drawn already.
            logits: ``(B, V)`` float32 that they were drawn from.

        Returns:
            Codes ``(B,)``, and the logits ``(B, V)`` that each was drawn from.
        """
        decision = scores.decision
        if decision is None:
            return codes, logits
        if self._resamples:
            without = ras.fallback(logits, codes[:, None], decision.resample)
            second = categorical(without, scores.noise(Draw.SECOND, logits.shape[1]))
            codes = torch.where(decision.resample[:, 0], second, codes)
            logits = torch.where(decision.resample, without, logits)
        if self._most > 1:
            codes = self._likeliest(scores, codes, logits, decision.candidates)
        return codes, logits

    def _likeliest(self, scores: Scores, codes: Tensor, logits: Tensor, wanted: Tensor) -> Tensor:
        """Draw up to the most candidates, and take the likeliest of those that a row wants."""
        rows, width = logits.shape
        noise = torch.stack(
            [scores.noise(Draw.CANDIDATE + number, width) for number in range(self._most - 1)], 1
        )
        many = logits[:, None].expand(-1, self._most - 1, -1).reshape(-1, width)
        others = categorical(many, noise.reshape(-1, width)).view(rows, -1)
        drawn = torch.cat([codes[:, None], others], 1)
        number = torch.arange(1, self._most + 1, device=logits.device)
        heights = logits.gather(1, drawn).masked_fill(number > wanted, -torch.inf)
        return drawn.gather(1, greedy(heights)[:, None])[:, 0]

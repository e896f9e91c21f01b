"""Beam search: one step over the beams of one utterance."""

import torch
from torch import Tensor


def beam_step(
    logits: Tensor, scores: Tensor, finished: Tensor, width: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Extend every beam by every code and keep the best; a finished beam competes as it is.

    Args:
        logits: ``(W, V)`` float32.
        scores: ``(W,)`` float32, log-probability of each beam in nats.
        finished: ``(W,)`` bool.
        width: How many beams to keep.

    Returns:
        Parent ``(width,)`` int64, code ``(width,)`` int64 (-1 for a finished beam that stays) and
        score ``(width,)`` float32, best first.

    Source: the textbook; vall-e's drops the parent and the sum of scores.
    """
    vocab_size = logits.shape[-1]
    extended = scores[:, None] + logits.log_softmax(-1)
    extended = extended.masked_fill(finished[:, None], -torch.inf)
    frozen = scores.masked_fill(~finished, -torch.inf)[:, None]
    candidates = torch.cat((extended, frozen), 1).flatten()
    best, places = candidates.topk(width)
    parents = places.div(vocab_size + 1, rounding_mode="floor")
    codes = places % (vocab_size + 1)
    return parents, torch.where(codes == vocab_size, -1, codes), best


def final_score(scores: Tensor, lengths: Tensor, alpha: Tensor) -> Tensor:
    """What finished beams are ranked by: score / length^alpha, all ``(W,)`` or broadcast."""
    return scores / lengths.clamp(min=1).to(scores.dtype).pow(alpha)

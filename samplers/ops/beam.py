"""Beam search: the likeliest beginnings of an utterance go on side by side.

`beam_step` is one step over the beams of one utterance, `final_score` what they are ranked by in
the end. `extend` does the step for every search among the rows of a batch, a beam a row: the first
that goes on from a row stays there, so that as few as possible have to be moved.
"""

from collections.abc import Sequence
from dataclasses import dataclass

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


@dataclass(frozen=True)
class Extension:
    """What became of the rows of a batch; those that are no beams go on as they were.

    Attributes:
        sources: Which row each goes on from, a number a row.
        codes: ``(B,)`` int64, by which code each goes on; -1 where a beam does not.
        scores: ``(B,)`` float32 nats, log-probability of each beam; -inf where a row is none.
    """

    sources: Sequence[int]
    codes: Tensor
    scores: Tensor


def extend(
    searches: Sequence[Sequence[int]],
    logits: Tensor,
    codes: Tensor,
    scores: Tensor,
    finished: Tensor,
) -> Extension:
    """Do a step of every search among the rows of a batch.

    Args:
        searches: The rows of each, all different.
        logits: ``(B, V)`` float32, of which no unfinished beam's are all -inf.
        codes: ``(B,)`` int64, of the other rows.
        scores: ``(B,)`` float32 nats, before; -inf where a row is no beam.
        finished: ``(B,)`` bool, beams that do not go on.

    Returns:
        The step. Where there are fewer ways to go on than rows, the last ones are no beams.
    """
    sources, codes, scores = list(range(len(logits))), codes.clone(), scores.clone()
    for rows in searches:
        index = torch.tensor(rows, device=logits.device)
        parents, following, best = beam_step(
            logits.index_select(0, index), scores[index], finished[index], len(rows)
        )
        alive = (best > -torch.inf).tolist()
        held = _settle(parents.tolist(), alive)
        order = torch.tensor([child for _, child in held], device=logits.device)
        codes[index] = following.masked_fill(best == -torch.inf, -1)[order]
        scores[index] = best[order]
        for row, (parent, _) in zip(rows, held, strict=True):
            sources[row] = rows[parent]
    return Extension(sources, codes, scores)


def _settle(parents: Sequence[int], alive: Sequence[bool]) -> list[tuple[int, int]]:
    """Give every child a row: the first of a parent its parent's, the others what is left.

    Args:
        parents: Of each child, best child first.
        alive: Which children are beams; the others go on from no other row.

    Returns:
        For each row the row that it goes on from, and the child that it holds.
    """
    held: dict[int, tuple[int, int]] = {}
    homeless = []
    for child, parent in enumerate(parents):
        if alive[child] and parent not in held:
            held[parent] = (parent, child)
        else:
            homeless.append(child)
    empty = (row for row in range(len(parents)) if row not in held)
    for row, child in zip(list(empty), homeless, strict=True):
        held[row] = (parents[child] if alive[child] else row, child)
    return [held[row] for row in range(len(parents))]

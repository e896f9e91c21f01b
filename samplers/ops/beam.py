"""Beam search: of one utterance, and of several among the rows of a batch, a beam a row."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


def beam_step(
    logits: Tensor, scores: Tensor, finished: Tensor, width: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Extend every beam by every code and keep the best; a finished beam competes as it is.

    Takes ``(W, V)`` logits, scores ``(W,)`` float32, the log-probability of each beam in nats,
    and finished ``(W,)`` bool. Returns parent ``(width,)`` int64, code ``(width,)`` int64 (-1
    for a finished beam that stays) and score ``(width,)`` float32, best first.
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
    """Return the rank of finished beams, score / length^alpha, ``(W,)``; arguments broadcast."""
    return scores / lengths.clamp(min=1).to(scores.dtype).pow(alpha)


@dataclass(frozen=True)
class Extension:
    """The result of a step of all searches; rows that are no beams keep their codes."""

    sources: Sequence[int]  # for each row, the row that it continues
    codes: Tensor  # (B,) int64, the code that extends each; -1 where a beam is not extended
    scores: Tensor  # (B,) float32 nats, log-probability of each beam; -inf in a row without one


def extend(
    searches: Sequence[Sequence[int]],
    logits: Tensor,
    codes: Tensor,
    scores: Tensor,
    finished: Tensor,
) -> Extension:
    """Extend the beams of every search; the first continuation of a row stays in that row.

    With fewer continuations than rows, the last rows of a search hold no beam.

    Args:
        searches: The rows of each, all different.
        logits: ``(B, V)`` float32; no unfinished beam's may be all -inf.
        codes: ``(B,)`` int64, sampled by rows that are no beams.
        scores: ``(B,)`` float32 nats, before the step; -inf in a row without a beam.
        finished: ``(B,)`` bool, beams that are not extended.
    """
    sources = list(range(len(logits)))
    codes = codes.clone()
    scores = scores.clone()
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
    """Assign a row to every child: the first of a parent gets its parent's, the others the rest."""
    held: dict[int, tuple[int, int]] = {}
    others = []
    for child, parent in enumerate(parents):
        if alive[child] and parent not in held:
            held[parent] = (parent, child)
        else:
            others.append(child)
    empty = (row for row in range(len(parents)) if row not in held)
    for row, child in zip(list(empty), others, strict=True):
        held[row] = (parents[child] if alive[child] else row, child)
    return [held[row] for row in range(len(parents))]

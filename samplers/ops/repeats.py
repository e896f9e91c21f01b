"""Repeated sequences: how many of the newest codes match an earlier place, and penalties on it.

All functions read one table ``(B, L)`` int64, *runs*: for each lag, from 1 on, how many of the
newest codes equal the codes that far back. `samplers.ar.state` keeps it from step to step: O(B * L)
a step.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

# e^88.7 is the largest power that float32 holds.
_LARGEST_LN = 88.7228391


def runs_of(codes: Sequence[int]) -> list[int]:
    """Return the table of one row, as many entries as ``codes`` (oldest first), in linear time.

    Source: the Z-algorithm, Gusfield 1997, over the codes newest first.
    """
    newest = codes[::-1]
    length = len(codes)
    found = [0] * length
    left = 0
    right = 0
    for lag in range(1, length):
        run = min(right - lag, found[lag - left]) if lag < right else 0
        while lag + run < length and newest[run] == newest[lag + run]:
            run += 1
        found[lag] = run
        if lag + run > right:
            left = lag
            right = lag + run
    return [*found[1:], 0][:length]


def next_runs(runs: Tensor, recent: Tensor) -> Tensor:
    """Return the table of `runs_of` after one new code, which ``recent`` has already."""
    following = torch.zeros_like(runs)
    same = (recent[:, 1:] == recent[:, :1]) & (recent[:, 1:] >= 0)
    following[:, :-1] = torch.where(same, runs[:, :-1] + 1, 0)
    return following


def dry(
    logits: Tensor,
    recent: Tensor,
    runs: Tensor,
    *,
    multiplier: Tensor,
    base: Tensor,
    allowed_length: Tensor,
    span: Tensor,
    breakers: Tensor | None = None,
) -> Tensor:
    """Lower each code that would prolong a repeated sequence, the more the longer it is.

    A code after a match of n codes loses multiplier * base^(n - allowed_length) nats.

    Args:
        multiplier: Nats; 0 is off.
        base: Float64, at least 1: a high power magnifies its rounding.
        allowed_length: Int64; shorter sequences may repeat.
        span: Int64, how many of the newest codes to look at.
        breakers: ``(B, V)`` bool, codes that no sequence crosses and that are never punished.

    Source: p-e-w, text-generation-webui PR 5677; the clamp of the exponent is llama.cpp's.
    """
    length = recent.shape[1]
    lags = torch.arange(1, length + 1, device=recent.device)
    seen = torch.minimum(span, (recent >= 0).sum(-1, keepdim=True))
    matched = torch.minimum(runs, seen - lags)
    following = recent.clamp(min=0)
    if breakers is not None:
        breaks = breakers.gather(1, following)
        unbroken = (breaks.cumsum(-1) == 0).sum(-1, keepdim=True)
        matched = torch.minimum(matched, unbroken).masked_fill_(breaks, 0)
    longest = torch.zeros(logits.shape, dtype=torch.int64, device=logits.device)
    longest.scatter_reduce_(1, following, matched.clamp_(min=0), "amax")
    ceiling = (_LARGEST_LN / base.log()).floor()
    exponent = torch.minimum(longest - allowed_length, ceiling)
    penalty = (multiplier * base.pow(exponent)).to(torch.float32)
    return logits - torch.where((longest >= allowed_length) & (multiplier > 0), penalty, 0.0)


def no_repeat_ngram(logits: Tensor, recent: Tensor, runs: Tensor, size: Tensor) -> Tensor:
    """Forbid every code that would complete a sequence of ``size`` codes (int64) again; 0 is off.

    Source: `transformers` NoRepeatNGramLogitsProcessor.
    """
    completes = (runs >= size - 1) & (recent >= 0) & (size > 0)
    banned = torch.zeros(logits.shape, dtype=torch.int64, device=logits.device)
    banned.scatter_reduce_(1, recent.clamp(min=0), completes.to(torch.int64), "amax")
    return logits.masked_fill(banned > 0, -torch.inf)


def ban_sequences(
    logits: Tensor, recent: Tensor, prefixes: Tensor, last: Tensor, strength: Tensor
) -> Tensor:
    """Lower the code that would complete a listed sequence; of several the strongest counts.

    Args:
        prefixes: ``(B, Q, M)`` int64: all but the last code of each sequence, newest first; -2
            matches anything.
        last: ``(B, Q)`` int64, the last code of each sequence.
        strength: ``(B, Q)`` float32 nats; 100 or more forbids, 0 pads.
    """
    width = prefixes.shape[-1]
    padded = torch.nn.functional.pad(
        recent[:, :width], (0, max(0, width - recent.shape[1])), value=-1
    )
    matches = ((prefixes == padded[:, None]) | (prefixes == -2)).all(-1)
    nats = torch.zeros_like(logits).scatter_reduce_(1, last, strength * matches, "amax")
    return (logits - nats).masked_fill_(nats >= 100, -torch.inf)

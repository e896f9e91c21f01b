"""Stuck speech: loops and silences, where to rewind to, and what to try less there.

Pure functions over a batch; who rewinds, and how often, is the engine's business.
"""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Hit:
    """What a detector found, each ``(B,)``.

    Attributes:
        found: Bool, whether the row is stuck.
        period: Int64, frames after which a loop repeats; 1 for a silence. 0 if nothing was found.
        run_length: Int64, how many of the newest frames are part of it; a silence that is not too
            long is counted, too.
        rewind_to: Int64, how many frames to keep; the row's length if nothing was found.
    """

    found: Tensor
    period: Tensor
    run_length: Tensor
    rewind_to: Tensor


def find_loop(
    runs: Tensor, lengths: Tensor, *, max_period: int, min_repeats: int, min_tokens: int
) -> Hit:
    """Find the smallest period in which the newest frames repeat often enough.

    Args:
        runs: ``(B, L)`` int64, of `samplers.ops.repeats.count_runs`.
        lengths: ``(B,)`` int64, frames drawn.
        max_period: The largest period to look for.
        min_repeats: Copies needed.
        min_tokens: Frames needed.

    Returns:
        The loop; one copy of it is kept.
    """
    window = runs[:, :max_period]
    periods = torch.arange(1, window.shape[1] + 1, device=runs.device)
    covered = torch.where(window > 0, window + periods, 0)
    stuck = covered >= (min_repeats * periods).clamp(min=min_tokens)
    beyond = max_period + 1
    smallest = torch.nn.functional.pad(
        torch.where(stuck, periods, beyond), (0, 1), value=beyond
    ).amin(-1)
    found = smallest < beyond
    period = torch.where(found, smallest, 0)
    column = (period - 1).clamp(min=0)[:, None]
    padded = torch.nn.functional.pad(covered, (0, 1))
    run_length = torch.where(found, padded.gather(1, column)[:, 0], 0)
    rewind_to = torch.where(found, lengths - run_length + period, lengths)
    return Hit(found, period, run_length, rewind_to)


def find_silence(
    recent: Tensor, lengths: Tensor, silent: Tensor, *, longest: int, keep: int
) -> Hit:
    """Find a run of silence at the end that is longer than allowed.

    Args:
        recent: ``(B, W)`` int64, newest first, -1 before the beginning; W must exceed ``longest``.
        lengths: ``(B,)`` int64, frames drawn.
        silent: ``(V,)`` bool, the codes of silence.
        longest: Frames of silence that are allowed.
        keep: How many of them to keep.

    Returns:
        The silence.
    """
    quiet = silent[recent.clamp(min=0)] & (recent >= 0)
    run_length = quiet.to(torch.int64).cumprod(-1).sum(-1)
    found = run_length > longest
    return Hit(
        found,
        found.to(torch.int64),
        run_length,
        torch.where(found, lengths - run_length + keep, lengths),
    )


def discourage(logits: Tensor, codes: Tensor, factors: Tensor, strength: Tensor) -> Tensor:
    """Make codes less likely where they led astray, before the chain runs again.

    Args:
        logits: ``(B, V)`` float32, the row as the model gave it there.
        codes: ``(B, Q)`` int64, what was chosen there; -1 pads.
        factors: ``(B, Q)`` float32 in (0, 1], what each code's odds are multiplied by.
        strength: ``(B, 1)`` float32, exponent on the factors; 0 is off, 100 or more forbids.

    Returns:
        ``(B, V)``.

    Source: antislop-sampler, `_filter_probs`, on logits instead of unnormalised probabilities.
    """
    nats = torch.where(codes >= 0, -factors.log() * strength, 0.0)
    nats = torch.where((strength >= 100) & (codes >= 0) & (factors < 1), torch.inf, nats)
    total = torch.zeros_like(logits).scatter_reduce_(1, codes.clamp(min=0), nats, "amax")
    return logits - total

"""Stuck speech: loops and overlong silences, at the newest frame and in a whole utterance.

``min_repeats`` copies of ``min_frames`` (``min_tokens``) frames together make a loop; of silence
``longest`` frames are allowed.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

_PERIODS_AT_ONCE = 128  # bounds the memory of `looped_frames`
_MANY = 2**31  # more frames than there are; knobs may be larger than int64 holds


@dataclass(frozen=True)
class Hit:
    """What a detector found, each ``(B,)``."""

    found: Tensor  # bool, whether the row is stuck
    # int64, frames after which a loop repeats; 1 for a silence. 0 if nothing was found
    period: Tensor
    # int64, how many of the newest frames are part of it; the length of a silence is counted even
    # if that is allowed
    run_length: Tensor
    rewind_to: Tensor  # int64, how many frames to keep; the row's length if nothing was found


def loop_lengths(
    runs: Tensor, periods: Tensor, *, min_repeats: int, min_frames: int
) -> tuple[Tensor, Tensor]:
    """Return how many frames repeat with each period, ``(B, P)`` int64, and whether that is a loop.

    ``periods`` are ``(P,)`` int64; ``runs`` ``(B, P)`` int64 the frames that equal those one period
    before.
    """
    lengths = torch.where(runs > 0, runs + periods, 0)
    needed = (min(min_repeats, _MANY) * periods).clamp(min=min(min_frames, _MANY))
    return lengths, lengths >= needed


def find_loop(
    runs: Tensor, lengths: Tensor, *, max_period: int, min_repeats: int, min_tokens: int
) -> Hit:
    """Find the smallest period in which the newest frames repeat often enough; one copy is kept.

    ``runs`` are those of `samplers.ops.repeats.runs_of`; ``lengths`` ``(B,)`` int64 frames drawn.
    """
    window = runs[:, :max_period]
    periods = torch.arange(1, window.shape[1] + 1, device=runs.device)
    covered, stuck = loop_lengths(window, periods, min_repeats=min_repeats, min_frames=min_tokens)
    beyond = window.shape[1] + 1
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
    """Find a run of silence at the end that is longer than allowed; ``keep`` frames of it are kept.

    The history must be wider than ``longest``; ``lengths`` are ``(B,)`` int64, ``silent`` ``(V,)``
    bool.
    """
    quiet = silent[recent.clamp(min=0)] & (recent >= 0)
    run_length = quiet.to(torch.int64).cumprod(-1).sum(-1)
    found = run_length > min(longest, _MANY)
    return Hit(
        found,
        found.to(torch.int64),
        run_length,
        torch.where(found, lengths - run_length + keep, lengths),
    )


def looped_frames(codes: Tensor, *, max_period: int, min_repeats: int, min_frames: int) -> Tensor:
    """Return which frames ``(T,)`` of an utterance only repeat a loop: all copies but the first."""
    frames = len(codes)
    edges = torch.zeros(frames + 1, dtype=torch.int64)  # where frames of loops begin, and end
    last_period = min(max_period, frames // min_repeats)
    places = torch.arange(frames)[:, None]
    for first in range(1, last_period + 1, _PERIODS_AT_ONCE):
        periods = torch.arange(first, min(first + _PERIODS_AT_ONCE, last_period + 1))
        before = places - periods
        runs = run_lengths((codes[before.clamp(min=0)] == codes[:, None]) & (before >= 0))
        _, stuck = loop_lengths(runs, periods, min_repeats=min_repeats, min_frames=min_frames)
        ends, columns = stuck.nonzero(as_tuple=True)
        edges.index_add_(0, ends - runs[ends, columns] + 1, torch.ones_like(ends))
        edges.index_add_(0, ends + 1, -torch.ones_like(ends))
    return edges.cumsum(0)[:-1] > 0


def overlong_frames(silent: Tensor, *, longest: int) -> Tensor:
    """Return which frames ``(T,)`` are beyond the allowed length of a silence; 0 allows any."""
    return (run_lengths(silent) > min(longest, _MANY)) & (longest > 0)


def run_lengths(flags: Tensor) -> Tensor:
    """Return how many true values in a row end at each place of the first axis, int64."""
    places = torch.arange(1, len(flags) + 1).reshape(-1, *[1] * (flags.ndim - 1))
    last_false = torch.where(flags, 0, places).cummax(0).values
    return places - last_false


def discourage(logits: Tensor, codes: Tensor, factors: Tensor, strength: Tensor) -> Tensor:
    """Lower codes that led into a loop or silence, before the processors run again.

    Args:
        logits: The model's at that frame.
        codes: ``(B, Q)`` int64, the codes drawn there before; -1 pads.
        factors: ``(B, Q)`` float32 in (0, 1], what each code's odds are multiplied by.
        strength: Exponent on the factors; 0 is off, 100 or more forbids.

    Source: antislop-sampler, `_filter_probs`, on logits instead of unnormalised probabilities.
    """
    nats = torch.where(codes >= 0, -factors.log() * strength, 0.0)
    nats = torch.where((strength >= 100) & (codes >= 0) & (factors < 1), torch.inf, nats)
    total = torch.zeros_like(logits).scatter_reduce_(1, codes.clamp(min=0), nats, "amax")
    return logits - total

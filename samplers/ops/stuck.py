"""Stuck speech: loops and overlong silences, at the newest frame and in a whole utterance.

``min_repeats`` copies of ``min_frames`` frames together make a loop; of silence
``longest`` frames are allowed.
"""

from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

_PERIODS_AT_ONCE = 128  # bounds the memory of `looped_frames`
_MANY = 2**31  # more frames than there are; knobs may be larger than int64 holds


class Hit(NamedTuple):
    """What a detector found at the newest frame."""

    period: int  # frames after which a loop repeats; 1 for a silence
    run_length: int  # how many of the newest frames are part of it
    rewind_to: int  # how many frames to keep


def find_loop(
    codes: Sequence[int], *, max_period: int, min_repeats: int, min_frames: int
) -> Hit | None:
    """Find the smallest period in which the newest codes repeat often enough; one copy is kept.

    ``codes`` are a list, or any other sequence whose slices are equal where their items are.
    """
    length = len(codes)
    for period in _periods(codes, max_period):
        # How many of the newest frames must equal those one period before
        least = max(1, max(min_repeats * period, min_frames) - period)
        if least + period > length or codes[-least:] != codes[-least - period : -period]:
            continue
        repeated = least
        while repeated + period < length and codes[-1 - repeated] == codes[-1 - repeated - period]:
            repeated += 1
        return Hit(period, repeated + period, length - repeated)
    return None


def _periods(codes: Sequence[int], longest: int) -> Iterator[int]:
    """Yield how many frames ago the newest code was sampled, within the longest period."""
    before = codes[-2 : -2 - longest : -1]
    period = 0
    for _ in range(before.count(codes[-1]) if before else 0):
        period = before.index(codes[-1], period) + 1
        yield period


def find_silence(
    codes: Sequence[int], silent: Collection[int], *, longest: int, keep: int
) -> Hit | None:
    """Find a run of silence at the end that is longer than allowed; ``keep`` frames of it are kept.

    ``silent`` are the codes that are silence.
    """
    run = next((run for run, code in enumerate(reversed(codes)) if code not in silent), len(codes))
    return Hit(1, run, len(codes) - run + keep) if run > longest else None


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
        needed = (min(min_repeats, _MANY) * periods).clamp(min=min(min_frames, _MANY))
        stuck = (runs > 0) & (runs + periods >= needed)
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
        codes: ``(B, Q)`` int64, the codes sampled there before; -1 pads.
        factors: ``(B, Q)`` float32 in (0, 1], what each code's odds are multiplied by.
        strength: Exponent on the factors; 0 is off, 100 or more forbids.

    Source: antislop-sampler, `_filter_probs`, on logits instead of unnormalised probabilities.
    """
    nats = torch.where(codes >= 0, -factors.log() * strength, 0.0)
    nats = torch.where((strength >= 100) & (codes >= 0) & (factors < 1), torch.inf, nats)
    total = torch.zeros_like(logits).scatter_reduce_(1, codes.clamp(min=0), nats, "amax")
    return logits - total

"""What takes of one utterance are ranked by: how likely their codes are, and what is odd in them.

    rank = mean log-probability of the codes
           - rank_loop_penalty * share of frames that only repeat a loop
           - rank_silence_penalty * share of frames in silences, beyond backtrack_max_silence each
           - rank_length_penalty * |ln((frames + 1) / (median frames of the takes + 1))|

The log-probabilities are the model's own: of what hears the words, at temperature 1. Likelihood
alone prefers what repeats itself and what says nothing (Holtzman et al. 2020, arXiv:1904.09751),
which the penalties make up for.
"""

import math
from collections.abc import Sequence
from statistics import fmean, median

import numpy as np
from numpy.typing import NDArray

from samplers.knobs.params import SamplingParams


def rank(
    logprobs: Sequence[float],
    codes: Sequence[int],
    silent: Sequence[int],
    params: SamplingParams,
    *,
    start: int = 0,
) -> float:
    """Rank a take by what it says, in nats a code; higher is better.

    Args:
        logprobs: Of its codes from ``start`` on, and of the stop if it ended by itself.
        codes: All its frames.
        silent: The codes of silence.
        params: Resolved.
        start: The first frame that counts.
    """
    frames = np.asarray(codes, np.int64)
    if not logprobs:
        return -math.inf
    quiet = np.isin(frames, np.asarray(silent, np.int64))
    looped = repeated(
        frames,
        max_period=params.backtrack_max_period,
        min_repeats=params.backtrack_min_repeats,
        min_frames=params.backtrack_min_frames,
    )
    looped &= ~quiet  # silence repeats itself by nature
    hushed = beyond(quiet, longest=params.backtrack_max_silence)
    count = max(len(frames) - start, 1)
    return (
        fmean(logprobs)
        - params.rank_loop_penalty * int(looped[start:].sum()) / count
        - params.rank_silence_penalty * int(hushed[start:].sum()) / count
    )


def oddity(frames: Sequence[int]) -> list[float]:
    """Tell of several takes how far the logarithm of each one's length is from the median's."""
    usual = math.log1p(median(frames))
    return [abs(math.log1p(count) - usual) for count in frames]


def repeated(
    frames: NDArray[np.int64], *, max_period: int, min_repeats: int, min_frames: int
) -> NDArray[np.bool_]:
    """Find the frames that only repeat a loop: all copies of what repeats but the first.

    Args:
        frames: ``[T]``.
        max_period: The longest sequence to look for.
        min_repeats: Copies that make a loop.
        min_frames: Frames that make a loop, all copies together.

    Returns:
        ``[T]``.
    """
    found = np.zeros(len(frames), np.bool_)
    for period in range(1, min(max_period, len(frames) // min_repeats) + 1):
        least = max(min_repeats * period, min_frames) - period
        for start, end in _runs(frames[period:] == frames[:-period]):
            if end - start >= least:
                found[start + period : end + period] = True
    return found


def beyond(flags: NDArray[np.bool_], *, longest: int) -> NDArray[np.bool_]:
    """Find what of each run of true values is more than it may have.

    Args:
        flags: ``[T]``.
        longest: How long a run may be; 0 allows any.

    Returns:
        ``[T]``.
    """
    found = np.zeros(len(flags), np.bool_)
    for start, end in _runs(flags) if longest else []:
        found[start + longest : end] = True
    return found


def _runs(flags: NDArray[np.bool_]) -> list[tuple[int, int]]:
    """Return where each run of true values begins and ends."""
    edges = np.flatnonzero(np.diff(flags, prepend=False, append=False))
    return list(zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True))

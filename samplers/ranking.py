"""The rank of a sequence: how likely its codes are, less penalties for loops, silence and length.

    rank = mean log-probability of the codes
           + rank_alignment_weight * how well they follow the text, from 0 to 1
           - rank_loop_penalty * share of frames that only repeat a loop
           - rank_silence_penalty * share of frames in silences, beyond backtrack_max_silence each
           - rank_length_penalty * |ln((frames + 1) / (median frames of the sequences + 1))|

The log-probabilities are the model's own, conditional on the words, at temperature 1. Likelihood
alone prefers repetition and silence (Holtzman et al. 2020, arXiv:1904.09751), which the penalties
make up for, and hardly sees a word that is missing or said twice: what follows the text is told by
an alignment head, where the model has one (`models.alignment.path.followed`).
"""

import math
from collections.abc import Sequence
from statistics import fmean, median

import torch

from samplers.knobs.params import SamplingParams
from samplers.ops.stuck import looped_frames, overlong_frames


def rank(
    logprobs: Sequence[float],
    codes: Sequence[int],
    silent: Sequence[int],
    params: SamplingParams,
    *,
    start: int = 0,
    followed: float = 0.0,
) -> float:
    """Return the rank of a sequence without the length's part, in nats a code; higher is better.

    ``logprobs`` are those of its codes from ``start`` on, and of the stop if it drew one; without
    any the rank is -inf. ``silent`` are the codes of silence, ``followed`` is how well the codes
    follow the text.
    """
    if not logprobs:
        return -math.inf
    frames = torch.tensor(codes, dtype=torch.int64)
    quiet = torch.isin(frames, torch.tensor(silent, dtype=torch.int64))
    looped = looped_frames(
        frames,
        max_period=params.backtrack_max_period,
        min_repeats=params.backtrack_min_repeats,
        min_frames=params.backtrack_min_frames,
    )
    looped &= ~quiet  # silence repeats itself by nature
    overlong = overlong_frames(quiet, longest=params.backtrack_max_silence)
    count = max(len(codes) - start, 1)
    return (
        fmean(logprobs)
        + params.rank_alignment_weight * followed
        - params.rank_loop_penalty * int(looped[start:].sum()) / count
        - params.rank_silence_penalty * int(overlong[start:].sum()) / count
    )


def oddity(frames: Sequence[int]) -> list[float]:
    """Return the distance of each length (in frames) from the median, both as logarithms."""
    usual = math.log1p(median(frames))
    return [abs(math.log1p(count) - usual) for count in frames]

"""Masked decoding of level 0 in several passes: the schedule, the choice of frames, the sample.

Chang et al. 2022, "MaskGIT", arXiv:2202.04200, with the bounds of e-c-k-e-r/vall-e.
"""

import math

import torch
from torch import Tensor

from samplers.knobs.params import SamplingParams
from samplers.nar import log_min_p, truncate
from samplers.ops import temperature as temperatures
from samplers.ops.rows import sanitise
from samplers.ops.sample import Stage, categorical, greedy, stream_key, uniform


def schedule(length: int, passes: int, *, remask: bool = False) -> list[int]:
    """Return how many frames are masked before each pass: a quarter cosine, from all to one.

    Each count is at least 1 and less than the one before. ``remask`` masks half a pass's share of
    all frames more. Source: MaskGIT, with vall-e's bounds.
    """
    more = 1 / (2 * passes) if remask else 0.0
    return [
        max(1, min(int((math.cos(progress * math.pi / 2) + more) * length), length - place))
        for place, progress in enumerate(progress_of(passes))
    ]


def progress_of(passes: int) -> list[float]:
    """Return the progress of each pass, from 0 to 1; the temperature falls by it."""
    return [place / (passes - 1) if passes > 1 else 0.0 for place in range(passes)]


def least_certain(scores: Tensor, count: int) -> Tensor:
    """Return which frames ``(T,)`` to mask again: the lowest scores, the earliest of equal ones."""
    order = scores.sort(stable=True).indices
    return torch.zeros_like(scores, dtype=torch.bool).scatter(0, order[:count], True)


@torch.inference_mode()
def sample_masked(
    logits: Tensor,
    codes: Tensor,
    masked: Tensor,
    params: SamplingParams,
    *,
    seed: int,
    utterance: int,
    place: int,
) -> tuple[Tensor, Tensor]:
    """Sample the masked frames of one pass, and score the certainty of every frame.

    ``logits`` ``(T, V)`` have guidance applied and are not changed; NaN counts as -inf.
    ``codes`` ``(T,)`` int64 were sampled in earlier passes, and are unused where ``masked``
    ``(T,)``. ``place`` is the pass, from 0.

    Returns codes ``(T,)`` int64 without a mask, and scores ``(T,)`` float32 for
    `least_certain`.
    """
    own = sanitise(logits)
    scores = _truncated(own, params)
    temperature = params.nar_len_temperature * (1 - progress_of(params.nar_len_steps)[place])
    sampled = greedy(scores)
    if temperature > 0:
        frames, vocab_size = scores.shape
        heated = temperatures.scale(scores, scores.new_tensor(temperature))
        key = stream_key(seed, utterance, Stage.MASKED)
        keys = torch.full((frames, 1), key, dtype=torch.int64, device=scores.device)
        positions = torch.arange(frames, device=scores.device)[:, None]
        noise = uniform(keys, vocab_size, step=place, position=positions)
        empty = scores.amax(-1) == -torch.inf
        sampled = torch.where(empty, sampled, categorical(heated, noise))
    codes = torch.where(masked, sampled, codes)
    if params.nar_len_score == "likeliest":
        certainty = scores.softmax(-1).amax(-1)
    else:
        certainty = own.softmax(-1).gather(1, codes[:, None])[:, 0]
    certainty = certainty.nan_to_num(0.0)  # of a row without a finite logit
    if params.nar_len_masked_only:
        certainty = certainty.masked_fill(~masked, 1.0)
    return codes, certainty


def _truncated(scores: Tensor, params: SamplingParams) -> Tensor:
    top_k = params.nar_len_top_k
    top_p = params.nar_len_top_p
    top = top_k if top_k > 0 else scores.shape[-1], top_p if top_p < 1 else math.inf
    k, p = (torch.full((len(scores), 1), one, device=scores.device) for one in top)
    least = torch.full_like(p, log_min_p(params.nar_len_min_p))
    sorts = top_k > 0 or top_p < 1
    return truncate(scores, (k, p) if sorts else None, least if params.nar_len_min_p > 0 else None)

"""Draws the codes of a finer level, all frames at once."""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from samplers.knobs.params import SamplingParams
from samplers.ops import filters
from samplers.ops import temperature as temperatures
from samplers.ops.draw import Stage, categorical, greedy, stream_key, uniform


@torch.inference_mode()
def sample_nar(
    logits: Tensor,
    params: SamplingParams,
    *,
    seed: int,
    utterance: int,
    level: int,
    position: int = 0,
    codebook: Tensor | None = None,
) -> Tensor:
    """Draw one code a frame; greedy by default.

    A code depends only on its own row, the frame's index and the seed: drawing in chunks gives the
    same codes as drawing the whole.

    Args:
        logits: ``(T, V)``, any float dtype; not changed. NaN counts as -inf.
        params: The knobs named `nar_`.
        seed: The request's seed.
        utterance: Index of the utterance in its text.
        level: The RVQ codebook, from 1.
        position: The frame index of the first row.
        codebook: ``(V, D)`` vectors of this level's codes; `nar_decision` `mean` needs them.

    Returns:
        ``(T,)`` int64. A row without a finite logit gives id 0.

    Raises:
        ValueError: `nar_decision` is `mean` and there is no codebook.
    """
    scores = filters.sanitise(logits)
    temperature = _temperature(params, level)
    if temperature <= 0:
        if params.nar_decision == "likeliest":
            return greedy(scores)
        if codebook is None:
            raise ValueError("nar_decision 'mean' needs the codebook of the level")
        return _nearest_to_mean(_truncate(scores, params), codebook)
    if temperature != 1:
        scores = temperatures.scale(scores, scores.new_tensor(temperature))
    scores = _truncate(scores, params)
    frames, vocab_size = scores.shape
    key = stream_key(seed, utterance, Stage.NAR, level)
    keys = torch.full((frames, 1), key, dtype=torch.int64, device=scores.device)
    positions = torch.arange(position, position + frames, device=scores.device)[:, None]
    codes = categorical(scores, uniform(keys, vocab_size, position=positions))
    empty = scores.amax(-1) == -torch.inf
    return torch.where(empty, greedy(scores), codes)


class NarRow(NamedTuple):
    """How one level of a row of frames is drawn, as numbers; see `row_of`."""

    key: int
    temperature: float
    mean: int
    top_k: int
    top_p: float
    log_min_p: float


def row_of(
    params: SamplingParams, *, seed: int, utterance: int, level: int, vocab_size: int
) -> NarRow:
    """Return what `sample_nar_rows` needs to know to draw as `sample_nar` does."""
    return NarRow(
        stream_key(seed, utterance, Stage.NAR, level),
        max(0.0, _temperature(params, level)),
        params.nar_decision == "mean",
        params.nar_top_k if 0 < params.nar_top_k < vocab_size else vocab_size,
        params.nar_top_p if params.nar_top_p < 1 else math.inf,
        min(math.log(params.nar_min_p), 0.0) if params.nar_min_p > 0 else -math.inf,
    )


def is_greedy(params: SamplingParams) -> bool:
    """Return whether all levels are greedy, over all codes."""
    whole = params.nar_top_k <= 0 and params.nar_top_p >= 1 and params.nar_min_p <= 0
    warm = max((params.nar_temperature, *params.nar_level_temperatures)) > 0
    return not warm and (whole or params.nar_decision == "likeliest")


class NarRows(NamedTuple):
    """`NarRow` of B rows: ``[B]`` each."""

    key: Tensor
    temperature: Tensor
    mean: Tensor
    top_k: Tensor
    top_p: Tensor
    log_min_p: Tensor


def sample_nar_rows(
    logits: Tensor, rows: NarRows, position: Tensor, codebook: Tensor, *, greedy_only: bool
) -> Tensor:
    """Draw one code a frame of several rows, in operators of fixed shapes, as `sample_nar` does.

    Args:
        logits: ``(B, T, V)`` float32.
        rows: How each is drawn, of `row_of`: the key and the top_k int64, the others float32.
        position: ``(B,)`` int64, the index of each row's first frame.
        codebook: ``(V, D)`` vectors of this level's codes.
        greedy_only: Whether all rows are `is_greedy`.

    Returns:
        ``(B, T)`` int64.
    """
    batch, frames, vocab_size = logits.shape

    def each(column: Tensor) -> Tensor:
        return column[:, None].expand(batch, frames).reshape(-1, 1)

    scores = filters.sanitise(logits.flatten(0, 1))
    best, mean = greedy(scores), each(rows.mean > 0)[:, 0]
    if greedy_only:
        drawn = torch.where(mean, _nearest_to_mean(scores, codebook), best)
        return drawn.view(batch, frames)
    temperature = each(rows.temperature)
    warm = temperature > 0
    scores = temperatures.scale(scores, torch.where(warm, temperature, 1.0))
    ordered = filters.descending(scores)
    floor = filters.top_k_floor(ordered, each(rows.top_k))
    scores, ordered = filters.keep_from(scores, floor), filters.keep_from(ordered, floor)
    scores = filters.keep_from(scores, filters.top_p_floor(ordered, each(rows.top_p)))
    scores = filters.keep_from(scores, scores.amax(-1, keepdim=True) + each(rows.log_min_p))
    positions = position[:, None] + torch.arange(frames, device=logits.device)
    noise = uniform(each(rows.key), vocab_size, position=positions.reshape(-1, 1))
    codes = categorical(scores, noise)
    codes = torch.where(scores.amax(-1) == -torch.inf, greedy(scores), codes)
    cold = torch.where(mean, _nearest_to_mean(scores, codebook), best)
    return torch.where(warm[:, 0], codes, cold).view(batch, frames)


def _temperature(params: SamplingParams, level: int) -> float:
    levels = params.nar_level_temperatures
    return levels[level - 1] if level <= len(levels) else params.nar_temperature


def _nearest_to_mean(scores: Tensor, codebook: Tensor) -> Tensor:
    """Return the code ``(T,)`` nearest the expected vector under ``(T, V)`` scores.

    It is the code of least expected squared error: of E|e - c|^2 = |c - E e|^2 + const, only the
    first term depends on the choice c. Where the model is certain this is the likeliest code, where
    it is uniform the one nearest the codebook's mean. Minimum Bayes risk, squared loss (Bishop
    2006, section 1.5.5).
    """
    mean = scores.softmax(-1) @ codebook
    distance = torch.addmm(codebook.square().sum(-1), mean, codebook.T, alpha=-2)
    # A masked code must not be chosen for lying near the mean; of a row of them the first is.
    return distance.masked_fill_(scores == -torch.inf, torch.inf).argmin(-1)


def _truncate(scores: Tensor, params: SamplingParams) -> Tensor:
    return truncate(scores, params.nar_top_k, params.nar_top_p, params.nar_min_p)


def truncate(scores: Tensor, top_k: int, top_p: float, min_p: float) -> Tensor:
    """Apply top-k, top-p and min-p, in this order, to ``(T, V)`` float32 scores."""
    if top_k > 0 or top_p < 1:
        ordered = filters.descending(scores)
        if top_k > 0:
            floor = filters.top_k_floor(ordered, _column(min(top_k, scores.shape[-1]), scores))
            scores, ordered = filters.keep_from(scores, floor), filters.keep_from(ordered, floor)
        if top_p < 1:
            floor = filters.top_p_floor(ordered, scores.new_tensor(top_p))
            scores = filters.keep_from(scores, floor)
    if min_p > 0:
        best = scores.amax(-1, keepdim=True)
        floor = best + min(math.log(min_p), 0.0)
        scores = filters.keep_from(scores, floor)
    return scores


def _column(value: int, like: Tensor) -> Tensor:
    return torch.full((like.shape[0], 1), value, dtype=torch.int64, device=like.device)

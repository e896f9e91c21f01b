"""Samples the codes of a NAR level: all frames of several rows at once."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from samplers.knobs.params import SamplingParams
from samplers.ops import filters
from samplers.ops import temperature as temperatures
from samplers.ops.rows import sanitise
from samplers.ops.sample import Stage, categorical, greedy, stream_key, uniform


class NarRow(NamedTuple):
    """How one level of a row of frames is sampled, as numbers that a recording can read."""

    key: int
    mean: int
    top_k: int
    temperature: float
    top_p: float
    log_min_p: float


class NarKind(NamedTuple):
    """What any of some rows needs; the others are sampled the same with it, only slower."""

    warm: bool
    mean: bool
    sorts: bool
    min_p: bool

    @property
    def is_light(self) -> bool:
        """Whether all rows are greedy, over all codes."""
        return not (self.warm or self.sorts or self.min_p)


LIGHT = NarKind(warm=False, mean=True, sorts=False, min_p=False)
FULL = NarKind(warm=True, mean=True, sorts=True, min_p=True)


def row_of(
    params: SamplingParams, *, seed: int, utterance: int, level: int, vocab_size: int
) -> NarRow:
    """Return how a level, from 1, of an utterance is sampled; see `sample_nar`."""
    return NarRow(
        stream_key(seed, utterance, Stage.NAR, level),
        params.nar_decision == "mean",
        params.nar_top_k if 0 < params.nar_top_k < vocab_size else vocab_size,
        max(0.0, _temperature(params, level)),
        params.nar_top_p if params.nar_top_p < 1 else math.inf,
        log_min_p(params.nar_min_p),
    )


def log_min_p(min_p: float) -> float:
    """Return how far below the best logit `truncate` cuts off; -inf keeps all."""
    return min(math.log(min_p), 0.0) if min_p > 0 else -math.inf


def kind_of(params: SamplingParams, level: int) -> NarKind:
    """Return what a level of an utterance needs."""
    warm = _temperature(params, level) > 0
    mean = params.nar_decision == "mean"
    filtered = warm or mean
    sorts = filtered and (params.nar_top_k > 0 or params.nar_top_p < 1)
    return NarKind(warm, mean and not warm, sorts, filtered and params.nar_min_p > 0)


def pack_rows(rows: Sequence[NarRow]) -> NDArray[np.int64]:
    """Return ``[B, 6]`` int64 of some rows; fractions are the bits of float64."""
    table = np.zeros((len(rows), len(NarRow._fields)), np.int64)
    table[:, :3] = [row[:3] for row in rows]
    table.view(np.float64)[:, 3:] = [row[3:] for row in rows]
    return table


@torch.inference_mode()
def sample_nar(
    logits: Tensor, rows: Tensor, position: Tensor, codebook: Tensor, kind: NarKind
) -> Tensor:
    """Sample one code a frame of several rows, ``(B, T)`` int64; 0 without a finite logit.

    A code depends only on its own row, the frame's index and the seed: sampling in chunks gives the
    same codes as sampling the whole.

    Args:
        logits: ``(B, T, V)``, any float dtype; not changed. NaN counts as -inf.
        rows: ``(B, 6)`` int64 of `pack_rows`.
        position: ``(B,)`` int64, the index of each row's first frame.
        codebook: ``(V, D)`` vectors of this level's codes, for `nar_decision` `mean`.
        kind: What any of the rows needs.
    """
    batch, frames, vocab_size = logits.shape
    scores = sanitise(logits.flatten(0, 1))
    codes = greedy(scores)
    if not (kind.warm or kind.mean):
        return codes.view(batch, frames)

    def each(column: Tensor) -> Tensor:
        return column[:, None].expand(batch, frames).reshape(-1, 1)

    key, mean, top_k = (each(column) for column in rows[:, :3].unbind(1))
    temperature, top_p, least = (
        each(column) for column in rows.view(torch.float64)[:, 3:].float().unbind(1)
    )
    warm = temperature > 0
    if kind.warm:
        scores = temperatures.scale(scores, torch.where(warm, temperature, 1.0))
    scores = truncate(scores, (top_k, top_p) if kind.sorts else None, least if kind.min_p else None)
    if kind.mean:
        codes = torch.where(mean[:, 0] > 0, _nearest_to_mean(scores, codebook), codes)
    if kind.warm:
        positions = position[:, None] + torch.arange(frames, device=logits.device)
        noise = uniform(key, vocab_size, position=positions.reshape(-1, 1))
        sampled = categorical(scores, noise)
        sampled = torch.where(scores.amax(-1) == -torch.inf, greedy(scores), sampled)
        codes = torch.where(warm[:, 0], sampled, codes)
    return codes.view(batch, frames)


def truncate(scores: Tensor, top: tuple[Tensor, Tensor] | None, least: Tensor | None) -> Tensor:
    """Apply top-k, top-p and min-p, in this order, to ``(T, V)`` sanitised scores.

    ``top`` is k int64 and p float32, ``least`` of `log_min_p`, ``(T, 1)`` each; None keeps all.
    """
    if top is not None:
        ordered = filters.descending(scores)
        floor = filters.top_k_floor(ordered, top[0])
        scores = filters.keep_from(scores, floor)
        ordered = filters.keep_from(ordered, floor)
        scores = filters.keep_from(scores, filters.top_p_floor(ordered, top[1]))
    if least is not None:
        scores = filters.keep_from(scores, scores.amax(-1, keepdim=True) + least)
    return scores


def _temperature(params: SamplingParams, level: int) -> float:
    levels = params.nar_level_temperatures
    return levels[level - 1] if level <= len(levels) else params.nar_temperature


def _nearest_to_mean(scores: Tensor, codebook: Tensor) -> Tensor:
    """Return the code ``(T,)`` nearest the expected vector under ``(T, V)`` scores."""
    # Of E|e - c|^2 = |c - E e|^2 + const only the first term depends on the choice c, so it is the
    # code of least expected squared error: minimum Bayes risk (Bishop 2006, section 1.5.5).
    mean = scores.softmax(-1) @ codebook
    distance = torch.addmm(codebook.square().sum(-1), mean, codebook.T, alpha=-2)
    # A masked code must not be chosen for lying near the mean; of a row of them the first is.
    return distance.masked_fill_(scores == -torch.inf, torch.inf).argmin(-1)

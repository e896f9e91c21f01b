"""Penalties: finite changes to the logits of codes sampled before, and of the stop.

-inf stays -inf.

``lengths`` are ``(B, 1)`` int64, frames sampled; ``mode`` is ``(B, 1)`` int64, an index of `MODES`.

Sources: penalty, Keskar et al. 2019, arXiv:1909.05858, with the sign rule of `transformers` and
llama.cpp; of the stop's length, vall-e, with that rule: undivided by sign it makes an unlikely stop
likelier; exponential decay, `transformers`; frequency and presence, OpenAI's API reference.
"""

import torch
from torch import Tensor

MODES = ("signed", "additive", "raw")
ADDITIVE = MODES.index("additive")
RAW = MODES.index("raw")

# e^20 decides any sample, and 75 repeats with decay would overflow float32.
STRONGEST_NATS = 20.0
# Contributions are summed as integers of 2^-32 nats: scatter_add on a GPU adds in any order, and
# only integers give the same sum in every order.
FIXED_POINT = 2.0**32


def apply_penalty(logits: Tensor, nats: Tensor, mode: Tensor) -> Tensor:
    """Lower logits by a penalty P = e^nats; below 0 nats reward.

    ``signed`` divides what is positive and multiplies the rest by P, so that a penalty always
    lowers; ``additive`` subtracts ``nats``; ``raw`` always divides.
    """
    factor = torch.where((logits > 0) | (mode == RAW), -nats, nats).exp_()
    return torch.where(mode == ADDITIVE, logits - nats, logits * factor).clamp_(max=1e30)


def nats_by_distance(
    width: int, *, log_factor: Tensor, decay: Tensor, window: Tensor, clamp: Tensor, mode: Tensor
) -> Tensor:
    """Return what one occurrence counts at each distance d, ``(B, width)`` int64 of 2^-32 nats.

    That is ln(factor * d^decay); under `ADDITIVE`, which has no clamp, ln(factor) * d^decay.

    Args:
        width: The greatest distance; that of the newest code is 1.
        log_factor: ln of the penalty; 0 is off.
        decay: Exponent on the distance.
        window: Int64, the largest distance that counts.
        clamp: Bool: distance cannot turn a penalty into a reward, or the reverse.

    Source: vall-e's repetition penalty with distance decay, its window and sign corrected. The
    decay of the logarithm is ours: that of the factor ends at distance factor^(1/|decay|).
    """
    distance = torch.arange(1, width + 1, device=log_factor.device)
    fading = decay * distance.log()
    nats = log_factor + fading
    bounded = torch.where(log_factor >= 0, nats.clamp(min=0), nats.clamp(max=0))
    nats = torch.where(clamp, bounded, nats)
    scaled = (log_factor * fading.exp()).clamp_(-STRONGEST_NATS, STRONGEST_NATS)
    nats = torch.where(mode == ADDITIVE, scaled, nats)
    counts = (distance <= window) & (log_factor != 0)
    return (nats * FIXED_POINT).to(torch.int64).mul_(counts)


def summed_nats(recent: Tensor, vocab_size: int, each: Tensor, one_time: Tensor | None) -> Tensor:
    """Return each code's nats, within 20 of 0; ``one_time``: those of its newest occurrence."""
    counts = recent >= 0
    ids = recent.clamp(min=0)
    if one_time is not None:
        counts &= ~one_time | _is_newest(ids, recent >= 0, vocab_size)
    total = torch.zeros(
        recent.shape[0], vocab_size, dtype=torch.int64, device=recent.device
    ).scatter_add_(1, ids, each * counts)
    return (total / FIXED_POINT).clamp_(-STRONGEST_NATS, STRONGEST_NATS)


def _is_newest(ids: Tensor, valid: Tensor, vocab_size: int) -> Tensor:
    """Return whether each of ``(B, W)`` ids, newest first, is the newest of its kind."""
    rows, width = ids.shape
    places = torch.arange(width, device=ids.device).expand(rows, width)
    first = torch.full((rows, vocab_size), width, dtype=torch.int64, device=ids.device)
    first.scatter_reduce_(1, ids, places.masked_fill(~valid, width), "amin")
    return first.gather(1, ids) == places


def length_penalty(
    logits: Tensor, lengths: Tensor, power: Tensor, mode: Tensor, stop_token: int
) -> Tensor:
    """Divide the odds of the stop by L^power, where L is the number of frames sampled plus one."""
    stop = logits[:, stop_token, None]
    penalised = apply_penalty(stop, power * (lengths + 1).log(), mode)
    return logits.select_scatter(penalised[:, 0], 1, stop_token)


def exponential_decay(
    logits: Tensor, lengths: Tensor, factor: Tensor, start: Tensor, stop_token: int
) -> Tensor:
    """Move the stop's logit z by ``|z| * (factor^n - 1)``, n frames past ``start`` (int64)."""
    stop = logits[:, stop_token, None]
    past = (lengths - start).clamp(min=0)
    # A factor too small for float32 has the logarithm -inf, of which 0 frames are no number.
    growth = (past * factor.log().clamp_(min=-1e3)).clamp_(max=STRONGEST_NATS).expm1_()
    moved = stop + torch.where(stop > -torch.inf, stop.abs() * growth, 0.0)
    return logits.select_scatter(moved.clamp_(max=1e30)[:, 0], 1, stop_token)


def occurrences(recent: Tensor, vocab_size: int, window: Tensor) -> Tensor:
    """Count each code among the newest ``window`` (int64) codes, ``(B, V)`` int64."""
    distance = torch.arange(1, recent.shape[1] + 1, device=recent.device)
    counts = ((recent >= 0) & (distance <= window)).to(torch.int64)
    zeros = torch.zeros(recent.shape[0], vocab_size, dtype=torch.int64, device=recent.device)
    return zeros.scatter_add_(1, recent.clamp(min=0), counts)


def frequency_presence(
    logits: Tensor, counts: Tensor, frequency: Tensor, presence: Tensor
) -> Tensor:
    """Subtract ``frequency`` nats for each occurrence of a code and ``presence`` nats for any."""
    return logits - counts * frequency - (counts > 0) * presence


def hold_stop(logits: Tensor, lengths: Tensor, min_frames: Tensor, stop_token: int) -> Tensor:
    """Forbid the stop while fewer than ``min_frames`` (int64) frames are sampled."""
    stop = logits[:, stop_token, None].masked_fill(lengths < min_frames, -torch.inf)
    return logits.select_scatter(stop[:, 0], 1, stop_token)

"""Mirostat: truncation that steers the surprise of the codes sampled to a target.

Its state mu is the largest surprise allowed, in bits; it starts at twice the target. Source: Basu
et al. 2020, arXiv:2007.14966, with the author's script (rounding of k) and notebook (version 2).
"""

import math

import torch
from torch import Tensor

_FARTHEST_BITS = 1e6  # where mu keeps one code, or all
_RATIOS = 100  # how many of the likeliest codes the Zipf exponent is estimated from


def version_1_floor(ordered: Tensor, mu: Tensor, vocab_size: int) -> Tensor:
    """Return the logit of the k-th code, where k makes a Zipf law's surprise equal to mu (bits).

    ``ordered`` is largest first. Where the row is too flat for an estimate all codes stay.
    """
    alive = (ordered > -torch.inf).sum(-1, keepdim=True)
    head = ordered[:, : _RATIOS + 1]
    ranks = torch.arange(1, head.shape[1], device=ordered.device)
    t = ((ranks + 1) / ranks).log()
    counts = ranks < alive
    b = torch.where(counts, head[:, :-1] - head[:, 1:], 0.0).nan_to_num_(nan=0.0)
    weight = torch.where(counts, t, 0.0)
    s = (weight * b).sum(-1, keepdim=True) / weight.square().sum(-1, keepdim=True).clamp(min=1e-9)
    ln_k = log_k(s, mu, vocab_size)
    k = (ln_k.exp().round() + 1).to(torch.int64)
    k = torch.where(s <= 1e-3, alive, k)
    return ordered.gather(-1, torch.minimum(k, alive).clamp_(min=1) - 1)


def log_k(s: Tensor, mu: Tensor, vocab_size: int) -> Tensor:
    """Return ln k, at most ln N, of k = (eps * 2^mu / (1 - N^-eps))^(1/s), where eps = s - 1."""
    log_n = math.log(max(vocab_size, 2))
    eps = s - 1
    near = eps.abs() < 1e-4
    safe = torch.where(near, 1.0, eps)
    ratio = torch.where(near, 1 / log_n, safe / -torch.expm1(-safe * log_n))
    return ((ratio.log() + mu * math.log(2)) / s.clamp(min=1e-3)).clamp_(max=log_n)


def version_2_floor(logits: Tensor, mu: Tensor) -> Tensor:
    """Return the logit of a code whose surprise is mu bits, or the best if none is that likely."""
    floor = logits.logsumexp(-1, keepdim=True) - mu * math.log(2)
    return torch.minimum(floor, logits.amax(-1, keepdim=True))


def update(mu: Tensor, log_prob: Tensor, tau: Tensor, eta: Tensor) -> Tensor:
    """Return the next mu: mu - eta * (surprise - tau) bits; ``log_prob`` is in nats."""
    # Bounded, so that the largest rates do not end in infinity less infinity.
    return (mu - eta * (-log_prob / math.log(2) - tau)).clamp_(-_FARTHEST_BITS, _FARTHEST_BITS)

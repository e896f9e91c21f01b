"""Attention statistics of single queries, the input of the entropix sampler.

Of B queries they are ``[4, B]`` float32, by `samplers.ops.entropix.ATTENTION`; those of one do not
depend on the others.

The fused attention kernel returns no scores, so those of the one query are computed again: one
product a row, over the keys of its slot only.
"""

import math

import torch
from torch import Tensor


def measure_attention(scores: Tensor, lengths: Tensor) -> Tensor:
    """Return the statistics of scores ``[B, heads, T]``, of which each query has ``lengths [B]``.

    Source: xjdr-alt/entropix, `calculate_metrics`, including its variance over the heads (of the
    population; vall-e's is unbiased).
    """
    seen = torch.arange(scores.shape[-1], device=scores.device) < lengths[:, None, None]
    log_weights = scores.masked_fill(~seen, -torch.inf).log_softmax(-1)
    weights = log_weights.exp()
    # A weight that underflows must count 0 * something finite.
    entropies = -(weights * log_weights.clamp(min=-1e3)).sum(-1) / math.log(2)
    entries = lengths * scores.shape[1]
    return torch.stack([
        entropies.mean(-1),
        entropies.var(-1, correction=0),
        (weights - weights.mean(1, keepdim=True)).abs().sum((1, 2)) / entries,
        scores.abs().masked_fill(~seen, 0.0).sum((1, 2)) / entries,
    ])


def attention_statistics(queries: Tensor, keys: Tensor, lengths: Tensor) -> Tensor:
    """Return the statistics of B queries.

    Args:
        queries: ``[B, heads, head_dim]``, rotated.
        keys: ``[B, kv_heads, T, head_dim]``, rotated and finite, the query's own among them.
        lengths: ``[B]`` int64, how many of the T positions each attends to.
    """
    grouped = queries.float().view(len(queries), keys.shape[1], -1, queries.shape[-1])
    scores = (grouped @ keys.float().transpose(-1, -2)).flatten(1, 2) * queries.shape[-1] ** -0.5
    return measure_attention(scores, lengths)

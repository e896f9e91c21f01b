"""Attention statistics of single queries, the input of the entropix sampler.

Of B queries they are ``[4, B]`` float32, by the fields of
`samplers.ops.entropix.AttentionStatistics`.

The fused attention kernel returns no scores, so those of the one query are computed again: one
product a row, over the keys of its slot only.
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor


def measure(scores: Tensor) -> Tensor:
    """Return the statistics of a query's scores ``[heads, T]``, as ``[4]``.

    Source: xjdr-alt/entropix, `calculate_metrics`, including its variance over the heads (of the
    population; vall-e's is unbiased).
    """
    log_weights = scores.log_softmax(-1)
    weights = log_weights.exp()
    # A weight that underflows must count 0 * something finite.
    entropies = -(weights * log_weights.clamp(min=-1e3)).sum(-1) / math.log(2)
    return torch.stack([
        entropies.mean(),
        entropies.var(correction=0),
        (weights - weights.mean(0)).abs().mean(),
        scores.abs().mean(),
    ])


def attention_statistics(queries: Sequence[Tensor], keys: Sequence[Tensor]) -> Tensor:
    """Return the statistics of B queries; a row's do not depend on the other rows.

    Args:
        queries: ``[heads, head_dim]`` a row, rotated.
        keys: ``[kv_heads, T, head_dim]`` a row, rotated, including the key of the query's own
            position; T may differ between rows.
    """
    rows = [measure(_scores(query, own)) for query, own in zip(queries, keys, strict=True)]
    return torch.stack(rows, 1)


def _scores(query: Tensor, keys: Tensor) -> Tensor:
    grouped = query.float().view(keys.shape[0], -1, query.shape[-1])
    return (grouped @ keys.float().transpose(-1, -2)).flatten(0, 1) * query.shape[-1] ** -0.5


def masked_statistics(queries: Tensor, keys: Tensor, lengths: Tensor) -> Tensor:
    """As `attention_statistics`, of rows padded to one length, in operators of fixed shapes.

    Args:
        queries: ``[B, heads, head_dim]``, rotated.
        keys: ``[B, kv_heads, T, head_dim]``, rotated and finite.
        lengths: ``[B]`` int64, how many of the T positions each row attends to.
    """
    kv_heads, count = keys.shape[1:3]
    grouped = queries.float().view(len(queries), kv_heads, -1, queries.shape[-1])
    scores = (grouped @ keys.float().transpose(-1, -2)).flatten(1, 2) * queries.shape[-1] ** -0.5
    seen = torch.arange(count, device=keys.device) < lengths[:, None, None]
    log_weights = scores.masked_fill(~seen, -torch.inf).log_softmax(-1)
    weights = log_weights.exp()
    entropies = -(weights * log_weights.clamp(min=-1e3)).sum(-1) / math.log(2)
    entries = lengths * scores.shape[1]
    return torch.stack([
        entropies.mean(-1),
        entropies.var(-1, correction=0),
        (weights - weights.mean(1, keepdim=True)).abs().sum((1, 2)) / entries,
        scores.abs().masked_fill(~seen, 0.0).sum((1, 2)) / entries,
    ])

"""Attention statistics of single queries, the input of the entropix sampler.

The fused attention kernel returns no scores, so those of the one query are computed again: one
product a row, over the keys of its slot only.
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from samplers.ops.entropix import AttentionStatistics


def measure(scores: Tensor) -> Tensor:
    """Compute the statistics of one query from its attention scores.

    Args:
        scores: ``[heads, T]`` float32, before the softmax.

    Returns:
        ``[4]`` float32 in the order of `AttentionStatistics`.

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


def attention_statistics(queries: Sequence[Tensor], keys: Sequence[Tensor]) -> AttentionStatistics:
    """Compute the attention statistics of one query a row.

    Args:
        queries: ``[heads, head_dim]`` a row, rotated.
        keys: ``[kv_heads, T, head_dim]`` a row, rotated, including the key of the query's own
            position; T may differ between rows.

    Returns:
        ``[B]`` of each statistic; a row's values do not depend on the other rows.
    """
    rows = [measure(_scores(query, own)) for query, own in zip(queries, keys, strict=True)]
    return AttentionStatistics(*torch.stack(rows, 1).unbind())


def _scores(query: Tensor, keys: Tensor) -> Tensor:
    """Return the scores ``[heads, T]`` float32 of a query against ``[kv_heads, T, head_dim]``."""
    grouped = query.float().view(keys.shape[0], -1, query.shape[-1])
    return (grouped @ keys.float().transpose(-1, -2)).flatten(0, 1) * query.shape[-1] ** -0.5

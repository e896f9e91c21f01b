"""What the attention of one position looks like, in four numbers: entropix samples by them.

The fused kernel gives no scores, so those of a single query are computed once more: one product a
row, over the keys that exist and no others.
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from samplers.ops.entropix import AttentionStatistics


def measure(scores: Tensor) -> Tensor:
    """Measure how the heads of one query attend.

    Args:
        scores: ``[heads, T]`` float32, before the softmax.

    Returns:
        ``[4]`` float32 in the order of `AttentionStatistics`.

    Source: xjdr-alt/entropix, `calculate_metrics`, with the variance over the heads that it has
    (of the population; vall-e's is unbiased).
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


def look(queries: Sequence[Tensor], keys: Sequence[Tensor]) -> AttentionStatistics:
    """Measure the attention of one query a row.

    Args:
        queries: ``[heads, head_dim]`` a row, rotated.
        keys: ``[kv_heads, T, head_dim]`` a row, rotated, with the key of the query's own position;
            T may differ.

    Returns:
        Of each row; a row's numbers do not depend on the others.
    """
    rows = [measure(_scores(query, seen)) for query, seen in zip(queries, keys, strict=True)]
    return AttentionStatistics(*torch.stack(rows, 1).unbind())


def _scores(query: Tensor, keys: Tensor) -> Tensor:
    """Score ``[heads, head_dim]`` against ``[kv_heads, T, head_dim]``: ``[heads, T]`` float32."""
    grouped = query.float().view(keys.shape[0], -1, query.shape[-1])
    return (grouped @ keys.float().transpose(-1, -2)).flatten(0, 1) * query.shape[-1] ** -0.5

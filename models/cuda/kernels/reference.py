"""What each kernel computes, in operators of torch. Nothing here needs a GPU."""

import torch
from torch import Tensor
from torch.nn import functional as F

from models.cuda.kernels.sharing import PAGE


def norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """Return the RMS norm of ``[S, D]``: ``x / sqrt(mean(x^2) + eps) * weight``."""
    return F.rms_norm(x, weight.shape, weight, eps)


def gated(gate_up: Tensor, activation: str) -> Tensor:
    """Return the activation of the first half of each row times the second half: ``[S, F]``.

    Args:
        gate_up: ``[S, 2 * F]``.
        activation: ``silu`` or ``gelu``, the exact one.
    """
    gate, up = gate_up.chunk(2, -1)
    return (F.gelu(gate) if activation == "gelu" else F.silu(gate)) * up


def store(qkv: Tensor, rotations: Tensor, keys: Tensor, values: Tensor, places: Tensor) -> Tensor:
    """Rotate queries and keys, store keys and values, and return the queries.

    The two components of each rotation, head_dim / 2 apart before, lie next to each other after it.
    What is not finite is stored as 0: positions behind a sequence's end may be read, weighted 0,
    and a masked NaN is still a NaN.

    Args:
        qkv: ``[S, heads + 2 * kv_heads, head_dim]``: queries, keys, values; rotated in float32.
        rotations: ``[S, 1, head_dim / 2]`` complex, of the position of each row.
        keys: ``[positions, kv_heads, head_dim]``, of all pages; changed.
        values: The same.
        places: ``[S]`` int64: where each row is stored. Rows that share a place leave any of them.

    Returns:
        ``[S, heads, head_dim]``.
    """
    kv_heads = keys.shape[1]
    heads, rotated = qkv.shape[1] - 2 * kv_heads, qkv.shape[1] - kv_heads
    product = torch.complex(*qkv[:, :rotated].float().chunk(2, -1)).mul_(rotations)
    turned = torch.view_as_real(product).flatten(2).to(qkv.dtype)
    for cached, new in ((keys, turned[:, heads:]), (values, qkv[:, rotated:])):
        cached.index_copy_(0, places, new.nan_to_num(0.0, 0.0, 0.0))
    return turned[:, :heads].contiguous()


def gather(rows: Tensor, pages: Tensor) -> Tensor:
    """Return the keys or values of some pages, ``[B, kv_heads, P * PAGE, head_dim]``.

    Args:
        rows: ``[positions, kv_heads, head_dim]``, of all pages.
        pages: ``[B, P]`` int64.
    """
    places = (pages[..., None] * PAGE + torch.arange(PAGE, device=pages.device)).flatten(1)
    found = rows.index_select(0, places.flatten())
    return found.view(*places.shape, *rows.shape[1:]).transpose(1, 2)


def attend(queries: Tensor, keys: Tensor, values: Tensor, seen: Tensor, pages: Tensor) -> Tensor:
    """Attend from the new positions of several sequences to what each of them sees.

    Args:
        queries: ``[B * C, heads, head_dim]``, those of a sequence together.
        keys: ``[positions, kv_heads, head_dim]``, of all pages.
        values: The same.
        seen: ``[B, C]`` int64, how many positions each new one sees, from the first on; at least 1.
        pages: ``[B, P]`` int64, the pages of each sequence in their order.

    Returns:
        ``[B * C, heads * head_dim]``.
    """
    (batch, count), (heads, head_dim), kv_heads = seen.shape, queries.shape[1:], keys.shape[1]
    group = heads // kv_heads
    # Heads that share a KV head are folded into the queries, so that no key is repeated.
    folded = queries.view(batch, count, kv_heads, group, head_dim)
    folded = folded.permute(0, 2, 3, 1, 4).reshape(batch, kv_heads, -1, head_dim)
    visible = torch.arange(pages.shape[1] * PAGE, device=seen.device) < seen[..., None]
    mask = visible[:, None].repeat(1, 1, group, 1)
    y = F.scaled_dot_product_attention(folded, gather(keys, pages), gather(values, pages), mask)
    y = y.view(batch, kv_heads, group, count, head_dim).permute(0, 3, 1, 2, 4)
    return y.reshape(batch * count, -1)

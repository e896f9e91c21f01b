"""What each kernel computes, in operators of torch. Nothing here needs a GPU."""

import torch
from torch import Tensor
from torch.nn import functional as F


def norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """Return the RMS norm of ``[S, D]``: ``x / sqrt(mean(x^2) + eps) * weight``."""
    return F.rms_norm(x, weight.shape, weight, eps)


def gated(gate_up: Tensor, activation: str) -> Tensor:
    """Return the activation of the first half of each row times the second half.

    Args:
        gate_up: ``[S, 2 * F]``.
        activation: ``silu`` or ``gelu``, the exact one.

    Returns:
        ``[S, F]``.
    """
    gate, up = gate_up.chunk(2, -1)
    return (F.gelu(gate) if activation == "gelu" else F.silu(gate)) * up


def replace_nonfinite(x: Tensor) -> Tensor:
    """Return keys or values with NaN and infinities replaced by 0.

    A row that has any is lost already: its hidden state has them too, through the residual.
    """
    return x.nan_to_num(0.0, 0.0, 0.0)


def rotate(qkv: Tensor, rotations: Tensor, rotated: int) -> None:
    """Rotate the first heads of ``[S, heads, head_dim]`` in place.

    The two components of each rotation, head_dim / 2 apart before, lie next to each other after it.

    Args:
        qkv: Float32, float64 or bfloat16; rotated in float32.
        rotations: ``[S, 1, head_dim / 2]`` complex.
        rotated: How many heads.
    """
    heads = qkv[:, :rotated]
    product = torch.complex(*heads.float().chunk(2, -1)).mul_(rotations)
    heads.copy_(torch.view_as_real(product).flatten(2))


def store(
    qkv: Tensor, rotations: Tensor, keys: Tensor, values: Tensor, places: Tensor, heads: int
) -> Tensor:
    """Rotate queries and keys, and store keys and values, with 0 for what is not finite.

    Args:
        qkv: ``[S, heads + 2 * kv_heads, head_dim]``: queries, keys, values.
        rotations: ``[S, 1, head_dim / 2]`` complex, of the position of each row.
        keys: ``[S, kv_heads, T, head_dim]``, a slot for each row; or ``[1, ...]``, for all.
        values: The same.
        places: ``[S]`` int64: where each row is stored in its slot. Rows that share a place leave
            any of them there.
        heads: Number of queries.

    Returns:
        The rotated queries ``[S, heads, head_dim]``.
    """
    kv_heads, rotated = keys.shape[1], qkv.clone()
    rotate(rotated, rotations, heads + kv_heads)
    new = replace_nonfinite(rotated[:, heads:])
    slots = torch.arange(len(qkv), device=qkv.device).clamp(max=len(keys) - 1)
    keys[slots, :, places] = new[:, :kv_heads]
    values[slots, :, places] = new[:, kv_heads:]
    return rotated[:, :heads].contiguous()


def bias_of(seen: Tensor, columns: int, dtype: torch.dtype) -> Tensor:
    """Return ``[B, 1, C, T]``: 0 where a position is visible, else -inf.

    Args:
        seen: ``[B, C]`` int64, how many positions each new one sees, from the first on.
        columns: T.
        dtype: Of the result.
    """
    visible = torch.zeros((), dtype=dtype, device=seen.device)
    hidden = torch.arange(columns, device=seen.device) >= seen[..., None]
    return torch.where(hidden, torch.full_like(visible, -torch.inf), visible)[:, None]


def attend_padded(queries: Tensor, keys: Tensor, values: Tensor, bias: Tensor) -> Tensor:
    """Attend from the new positions of each of several sequences, all padded to one length.

    One kernel call for all. What is past a sequence's end is read but weighted 0, which requires it
    to be finite.

    Args:
        queries: ``[B * C, heads, head_dim]``, those of a sequence together.
        keys: ``[B, kv_heads, T, head_dim]``.
        values: ``[B, kv_heads, T, head_dim]``.
        bias: ``[B, 1, group * C, T]`` of their dtype: 0 where a position is visible, else -inf;
            once for each of the heads that share a KV head.

    Returns:
        ``[B * C, heads * head_dim]``.
    """
    (batch, kv_heads), (heads, head_dim) = keys.shape[:2], queries.shape[1:]
    count, group = len(queries) // batch, heads // kv_heads
    folded = queries.view(batch, count, kv_heads, group, head_dim)
    folded = folded.permute(0, 2, 3, 1, 4).reshape(batch, kv_heads, -1, head_dim)
    bias = bias.expand(-1, kv_heads, -1, -1)
    y = F.scaled_dot_product_attention(folded, keys, values, attn_mask=bias)
    y = y.view(batch, kv_heads, group, count, head_dim).permute(0, 3, 1, 2, 4)
    return y.reshape(batch * count, -1)


def read_places(pages: Tensor, columns: int) -> Tensor:
    """Return where all positions of some pages lie, ``[B * columns]`` int64; see `gather`.

    Args:
        pages: ``[B, P]`` int64, of each sequence.
        columns: P pages.
    """
    page = columns // pages.shape[1]
    return (pages[..., None] * page + torch.arange(page, device=pages.device)).flatten()


def gather(rows: Tensor, places: Tensor, sequences: int) -> Tensor:
    """Return the keys or values of some pages, ``[B, kv_heads, columns, head_dim]``.

    Args:
        rows: ``[1, kv_heads, positions, head_dim]``, of all pages.
        places: ``[B * columns]`` int64.
        sequences: B.
    """
    found = rows[0].transpose(0, 1).index_select(0, places)
    return found.view(sequences, -1, *found.shape[1:]).transpose(1, 2)


def attend(
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    seen: Tensor,
    pages: Tensor | None,
    columns: int,
) -> Tensor:
    """Attend from the new positions of several sequences to what each of them sees.

    Args:
        queries: ``[B * C, heads, head_dim]``, those of a sequence together.
        keys: ``[B, kv_heads, >= columns, head_dim]``, a slot for each sequence; or ``[1, ...]``,
            all pages.
        values: The same.
        seen: ``[B, C]`` int64, how many positions each new one sees, from the first on; at least 1.
        pages: ``[B, P]`` int64, the pages of each sequence; None: it has a slot.
        columns: No sequence sees more; with pages, P of them.

    Returns:
        ``[B * C, heads * head_dim]``.
    """
    if pages is None:
        keys, values = keys[:, :, :columns], values[:, :, :columns]
    else:
        places = read_places(pages, columns)
        keys, values = (gather(rows, places, len(pages)) for rows in (keys, values))
    bias = bias_of(seen, columns, queries.dtype)
    group = queries.shape[1] // keys.shape[1]
    return attend_padded(queries, keys, values, bias.repeat(1, 1, group, 1))

"""What each kernel computes, in operators of torch. Nothing here needs a GPU."""

import torch
from torch import Tensor
from torch.nn import functional as F

from models.cuda.kernels.sharing import PAGE

SCALE_BYTES = 4
"""Of the float32 scale of each head of a position, where keys and values are in 8 bits."""

INT8_LEVELS = 127
"""Largest of these integers; the largest entry of a head is this many scales."""


def norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """Return the RMS norm of ``[S, D]``: ``x / sqrt(mean(x^2) + eps) * weight``."""
    return F.rms_norm(x, weight.shape, weight, eps)


def project(
    x: Tensor,
    weight: Tensor,
    gain: Tensor,
    eps: float,
    activation: str,
    bias: Tensor | None = None,
) -> Tensor:
    """Return the product of the norm of each row of ``[S, D]`` with a matrix.

    Args:
        weight: ``[N, D]``.
        gain: ``[D]``, the weight of the norm.
        activation: ``silu`` or ``gelu``, the exact one: of the first half of each row of the
            product, which is multiplied by the second half. ``relu``: of all of it. "": of none.
        bias: ``[N]``, what is added to the product; None: nothing.

    Returns:
        ``[S, N]``, or half as wide where a half is multiplied.
    """
    y = F.linear(norm(x, gain, eps), weight, bias)
    if not activation:
        return y
    if activation == "relu":
        return F.relu(y)
    gate, up = y.chunk(2, -1)
    return (F.gelu(gate) if activation == "gelu" else F.silu(gate)) * up


def halves(activation: str) -> int:
    """Return how many times as wide a product is as what `project` makes of it."""
    return 1 if activation in {"", "relu"} else 2


def add_product(total: Tensor, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> None:
    """Add the product of ``[S, D]`` with ``weight`` ``[N, D]`` to ``total`` ``[S, N]``.

    And ``bias`` ``[N]``, if there is one, to each row.
    """
    total.addmm_(x, weight.t())
    if bias is not None:
        total += bias


def store(qkv: Tensor, rotations: Tensor, keys: Tensor, values: Tensor, places: Tensor) -> Tensor:
    """Rotate queries and keys, store keys and values, and return the queries.

    The two components of each rotation, head_dim / 2 apart before, lie next to each other after it.
    What is not finite is stored as 0: positions behind a sequence's end may be read, weighted 0,
    and a masked NaN is still a NaN. Where ``keys`` are int8, each head of a position is stored in
    integers of 8 bits and a scale, see `integers_and_scales`.

    Args:
        qkv: ``[S, heads + 2 * kv_heads, head_dim]``: queries, keys, values; rotated in float32.
        rotations: ``[S, 1, head_dim / 2]`` complex, of the position of each row.
        keys: ``[positions, kv_heads, head_dim]`` of the dtype of ``qkv``, or
            ``[positions, kv_heads, head_dim + SCALE_BYTES]`` int8, of all pages; changed.
        values: The same.
        places: ``[S]`` int64: where each row is stored. Rows that share a place leave any of them.

    Returns:
        ``[S, heads, head_dim]``.
    """
    kv_heads = keys.shape[1]
    heads = qkv.shape[1] - 2 * kv_heads
    rotated = qkv.shape[1] - kv_heads
    product = torch.complex(*qkv[:, :rotated].float().chunk(2, -1)).mul_(rotations)
    turned = torch.view_as_real(product).flatten(2).to(qkv.dtype)
    for cached, new in ((keys, turned[:, heads:]), (values, qkv[:, rotated:])):
        put(cached, places, new.nan_to_num(0.0, 0.0, 0.0))
    return turned[:, :heads].contiguous()


def put(rows: Tensor, places: Tensor, new: Tensor) -> None:
    """Store ``[S, kv_heads, head_dim]`` finite keys or values, in the number format of ``rows``."""
    if rows.dtype == torch.int8:
        integers, scales = integers_and_scales(rows)
        wide = new.float()
        scale = wide.abs().amax(-1) / INT8_LEVELS
        steps = wide / scale.clamp(min=torch.finfo(torch.float32).tiny)[..., None]
        integers.index_copy_(0, places, (steps + 0.5).floor().to(torch.int8))
        scales.index_copy_(0, places, scale)
    else:
        rows.index_copy_(0, places, new)


def integers_and_scales(rows: Tensor) -> tuple[Tensor, Tensor]:
    """Return integers ``[positions, kv_heads, head_dim]`` and scales ``[positions, kv_heads]``.

    Views of keys or values in 8 bits: a position has the integers of all heads, then their scales,
    so that each position begins at a multiple of 16 bytes if there are 4 heads or more.

    Args:
        rows: ``[positions, kv_heads, head_dim + SCALE_BYTES]`` int8.
    """
    positions, kv_heads, width = rows.shape
    held = rows.view(positions, kv_heads * width)
    size = kv_heads * (width - SCALE_BYTES)
    return held[:, :size].view(positions, kv_heads, -1), held[:, size:].view(torch.float32)


def gather(rows: Tensor, pages: Tensor, dtype: torch.dtype) -> Tensor:
    """Return the keys or values of some pages, ``[B, kv_heads, P * PAGE, head_dim]``.

    Args:
        rows: Of all pages, as `store` leaves them.
        pages: ``[B, P]`` int64.
        dtype: Of the result.
    """
    places = (pages[..., None] * PAGE + torch.arange(PAGE, device=pages.device)).flatten(1)
    wanted = places.flatten()
    found = floats(rows.index_select(0, wanted)).to(dtype)
    return found.view(*places.shape, *found.shape[1:]).transpose(1, 2)


def in_8_bits(rows: Tensor) -> Tensor:
    """Return finite keys or values ``[..., positions, kv_heads, head_dim]`` in 8 bits."""
    shape = (*rows.shape[:-1], rows.shape[-1] + SCALE_BYTES)
    held = torch.zeros(shape, dtype=torch.int8, device=rows.device)
    new = rows.flatten(0, -3)
    put(held.flatten(0, -3), torch.arange(len(new), device=rows.device), new)
    return held


def floats(rows: Tensor) -> Tensor:
    """Return keys or values ``[positions, kv_heads, head_dim]``, in float32 of 8 bits."""
    if rows.dtype != torch.int8:
        return rows
    integers, scales = integers_and_scales(rows)
    return integers * scales[..., None]


def attend(queries: Tensor, keys: Tensor, values: Tensor, seen: Tensor, pages: Tensor) -> Tensor:
    """Attend from the new positions of several sequences to what each of them sees.

    Args:
        queries: ``[B * C, heads, head_dim]``, those of a sequence together.
        keys: Of all pages, as `store` leaves them.
        values: The same.
        seen: ``[B, C]`` int64, how many positions each new one sees, from the first on; at least 1.
        pages: ``[B, P]`` int64, the pages of each sequence in their order.

    Returns:
        ``[B * C, heads * head_dim]``.
    """
    visible = torch.arange(pages.shape[1] * PAGE, device=seen.device) < seen[..., None]
    key, value = (gather(rows, pages, queries.dtype) for rows in (keys, values))
    return attend_grouped(queries, key, value, visible)


def attend_grouped(queries: Tensor, keys: Tensor, values: Tensor, visible: Tensor | None) -> Tensor:
    """As `attend`, to keys and values ``[B, kv_heads, T, head_dim]``.

    ``visible`` is ``[B, C, T]`` bool; None: everything is.
    """
    (batch, kv_heads) = keys.shape[:2]
    (heads, head_dim) = queries.shape[1:]
    group = heads // kv_heads
    # Heads that share a KV head are folded into the queries, so that no key is repeated.
    folded = queries.view(batch, -1, kv_heads, group, head_dim)
    folded = folded.permute(0, 2, 3, 1, 4).reshape(batch, kv_heads, -1, head_dim)
    mask = None if visible is None else visible[:, None].repeat(1, 1, group, 1)
    y = F.scaled_dot_product_attention(folded, keys, values, mask)
    y = y.view(batch, kv_heads, group, -1, head_dim).permute(0, 3, 1, 2, 4)
    return y.reshape(len(queries), -1)

"""Rotary positions of queries and keys, and new entries of the cache, in one kernel.

Imports Triton.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor


@triton.jit
def store_kernel(
    qkv, rotations, queries, keys, values, places,
    HEADS: tl.constexpr, KV_HEADS: tl.constexpr, HALF: tl.constexpr, ALL_HEADS: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """Rotate the queries and the key of one row a program, and store key and value."""
    row = tl.program_id(0).to(tl.int64)
    head = tl.arange(0, ALL_HEADS)[:, None]
    at = tl.arange(0, BLOCK)[None]
    inside = (head < HEADS + 2 * KV_HEADS) & (at < HALF)
    origin = qkv + (row * (HEADS + 2 * KV_HEADS) + head) * 2 * HALF + at
    first = tl.load(origin, inside, 0.0)
    second = tl.load(origin + HALF, inside, 0.0)
    cos = tl.load(rotations + (row * HALF + at) * 2, at < HALF, 0.0)
    sin = tl.load(rotations + (row * HALF + at) * 2 + 1, at < HALF, 0.0)
    wide, other = first.to(tl.float32), second.to(tl.float32)
    real = (wide * cos - other * sin).to(queries.dtype.element_ty)
    imaginary = (wide * sin + other * cos).to(queries.dtype.element_ty)

    # The two components of a rotation lie side by side, as `view_as_real` puts them.
    target = queries + (row * HEADS + head) * 2 * HALF + 2 * at
    tl.store(target, real, inside & (head < HEADS))
    tl.store(target + 1, imaginary, inside & (head < HEADS))

    cached = tl.load(places + row) * KV_HEADS * 2 * HALF
    is_key = inside & (head >= HEADS) & (head < HEADS + KV_HEADS)
    target = keys + cached + (head - HEADS) * 2 * HALF + 2 * at
    tl.store(target, _finite(real), is_key)
    tl.store(target + 1, _finite(imaginary), is_key)
    is_value = inside & (head >= HEADS + KV_HEADS)
    target = values + cached + (head - HEADS - KV_HEADS) * 2 * HALF + at
    tl.store(target, _finite(first), is_value)
    tl.store(target + HALF, _finite(second), is_value)


@triton.jit
def _finite(x):
    """Replace NaN and infinities by 0."""
    return tl.where(tl.abs(x.to(tl.float32)) < float("inf"), x, 0.0).to(x.dtype)


def store(qkv: Tensor, rotations: Tensor, keys: Tensor, values: Tensor, places: Tensor) -> Tensor:
    """As `models.cuda.kernels.reference.store`."""
    rows, all_heads, head_dim = qkv.shape
    kv_heads, qkv = keys.shape[1], qkv.contiguous()
    heads = all_heads - 2 * kv_heads
    queries = qkv.new_empty(rows, heads, head_dim)
    pairs = torch.view_as_real(rotations).contiguous()
    store_kernel[(rows,)](
        qkv, pairs, queries, keys, values, places.contiguous(), heads, kv_heads, head_dim // 2,
        triton.next_power_of_2(all_heads), triton.next_power_of_2(head_dim // 2),
    )  # fmt: skip
    return queries

"""The kernels of a layer but attention: norm, gate, rotary positions and what the cache stores.

They import Triton.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

_BLOCK = 1024  # entries of a gate that a program computes


@triton.jit
def norm_kernel(x, weight, out, eps, WIDTH: tl.constexpr, BLOCK: tl.constexpr):
    """Norm one row of ``[S, WIDTH]`` a program."""
    row = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, BLOCK)
    inside = at < WIDTH
    entries = tl.load(x + row * WIDTH + at, inside, 0.0).to(tl.float32)
    factor = tl.rsqrt(tl.sum(entries * entries, 0) / WIDTH + eps)
    weights = tl.load(weight + at, inside, 0.0).to(tl.float32)
    tl.store(out + row * WIDTH + at, (entries * factor * weights).to(out.dtype.element_ty), inside)


def norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """As `models.cuda.kernels.reference.norm`."""
    x, width = x.contiguous(), x.shape[-1]
    out = torch.empty_like(x)
    block = triton.next_power_of_2(width)
    norm_kernel[(x.numel() // width,)](x, weight, out, eps, width, block)
    return out


@triton.jit
def gated_kernel(gate_up, out, WIDTH: tl.constexpr, GELU: tl.constexpr, BLOCK: tl.constexpr):
    """Multiply ``BLOCK`` entries of one row of ``[S, 2 * WIDTH]`` a program."""
    row = tl.program_id(0).to(tl.int64)
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = at < WIDTH
    gate = tl.load(gate_up + row * 2 * WIDTH + at, inside, 0.0).to(tl.float32)
    up = tl.load(gate_up + row * 2 * WIDTH + WIDTH + at, inside, 0.0).to(tl.float32)
    if GELU:
        activated = 0.5 * gate * (1.0 + tl.erf(gate * 0.7071067811865476))
    else:
        activated = gate * tl.sigmoid(gate)
    tl.store(out + row * WIDTH + at, (activated * up).to(out.dtype.element_ty), inside)


def gated(gate_up: Tensor, activation: str) -> Tensor:
    """As `models.cuda.kernels.reference.gated`."""
    gate_up = gate_up.contiguous()
    rows, width = len(gate_up), gate_up.shape[1] // 2
    out = gate_up.new_empty(rows, width)
    grid = (rows, triton.cdiv(width, _BLOCK))
    gated_kernel[grid](gate_up, out, width, activation == "gelu", _BLOCK)
    return out


@triton.jit
def store_kernel(
    qkv, rotations, queries, keys, values, places,
    HEADS: tl.constexpr, KV_HEADS: tl.constexpr, HALF: tl.constexpr, ALL_HEADS: tl.constexpr,
    BLOCK: tl.constexpr, EIGHT: tl.constexpr,
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

    place = tl.load(places + row)
    is_key = inside & (head >= HEADS) & (head < HEADS + KV_HEADS)
    _store_heads(
        keys, place, head - HEADS, real, imaginary, 2 * at, 1, is_key, KV_HEADS, HALF, EIGHT
    )
    is_value = inside & (head >= HEADS + KV_HEADS)
    own = head - HEADS - KV_HEADS
    _store_heads(values, place, own, first, second, at, HALF, is_value, KV_HEADS, HALF, EIGHT)


@triton.jit
def _store_heads(
    rows, place, head, first, second, at, apart, wanted,
    KV_HEADS: tl.constexpr, HALF: tl.constexpr, EIGHT: tl.constexpr,
):  # fmt: skip
    """Store both halves of the keys or values of a position's heads, ``apart`` from each other."""
    first, second = _finite(first), _finite(second)
    origin = rows + place * KV_HEADS * 2 * HALF
    if EIGHT:
        origin += place * KV_HEADS * 4  # the scales of each position before
        wide, other = first.to(tl.float32), second.to(tl.float32)
        largest = tl.max(tl.where(wanted, tl.maximum(tl.abs(wide), tl.abs(other)), 0.0), 1)
        scale = tl.div_rn(largest, 127.0)[:, None]
        first, second = _steps(wide, scale), _steps(other, scale)
    target = origin + head * 2 * HALF + at
    tl.store(target, first, wanted)
    tl.store(target + apart, second, wanted)
    if EIGHT:  # Triton 3.6 compiles it in this order alone
        scales = (origin + KV_HEADS * 2 * HALF).to(tl.pointer_type(tl.float32))
        tl.store(scales + head, scale, (head >= 0) & (head < KV_HEADS))


@triton.jit
def _steps(x, scale):
    """Return numbers as integers of a scale, rounded."""
    return tl.floor(tl.div_rn(x, tl.maximum(scale, 1.1754943508222875e-38)) + 0.5).to(tl.int8)


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
        keys.dtype == torch.int8,
    )  # fmt: skip
    return queries

"""The kernels of a layer but attention: norm, products, gate, rotary positions, what is stored.

They import Triton.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.nn import functional as F

from gpu.launch import await_others, launch
from models.cuda.kernels import reference
from models.cuda.kernels.reference import halves
from models.cuda.kernels.sharing import FEW, product_tile

_BLOCK = 1024  # entries of a gate that a program computes
_HEADS = 4  # of a row that a program rotates and stores


@triton.jit
def norm_kernel(x, weight, out, eps, WIDTH: tl.constexpr, BLOCK: tl.constexpr, EARLY: tl.constexpr):
    """Norm one row of ``[S, WIDTH]`` a program."""
    await_others(EARLY)
    row = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, BLOCK)
    inside = at < WIDTH
    entries = tl.load(x + row * WIDTH + at, inside, 0.0).to(tl.float32)
    factor = tl.rsqrt(tl.sum(entries * entries, 0) / WIDTH + eps)
    weights = tl.load(weight + at, inside, 0.0).to(tl.float32)
    tl.store(out + row * WIDTH + at, (entries * factor * weights).to(out.dtype.element_ty), inside)


def norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """As `models.cuda.kernels.reference.norm`."""
    x = x.contiguous()
    width = x.shape[-1]
    out = torch.empty_like(x)
    block = triton.next_power_of_2(width)
    launch(norm_kernel, (x.numel() // width,), x, weight, out, eps, width, block)
    return out


@triton.jit
def _gated(gate, up, GELU: tl.constexpr):
    """Return the activation of ``gate`` times ``up``."""
    if GELU:
        activated = 0.5 * gate * (1.0 + tl.erf(gate * 0.7071067811865476))
    else:
        activated = gate * tl.sigmoid(gate)
    return activated * up


@triton.jit
def gated_kernel(
    gate_up, out, WIDTH: tl.constexpr, GELU: tl.constexpr, BLOCK: tl.constexpr, EARLY: tl.constexpr
):
    """Multiply ``BLOCK`` entries of one row of ``[S, 2 * WIDTH]`` a program."""
    await_others(EARLY)
    row = tl.program_id(0).to(tl.int64)
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = at < WIDTH
    gate = tl.load(gate_up + row * 2 * WIDTH + at, inside, 0.0).to(tl.float32)
    up = tl.load(gate_up + row * 2 * WIDTH + WIDTH + at, inside, 0.0).to(tl.float32)
    tl.store(out + row * WIDTH + at, _gated(gate, up, GELU).to(out.dtype.element_ty), inside)


@triton.jit
def product_kernel(
    x, gain, weight, bias, out, rows, outputs, eps, INPUTS: tl.constexpr, NORM: tl.constexpr,
    GATE: tl.constexpr, GELU: tl.constexpr, RELU: tl.constexpr, BIAS: tl.constexpr,
    ADD: tl.constexpr, COLUMNS: tl.constexpr, STEP: tl.constexpr, EARLY: tl.constexpr,
):  # fmt: skip
    """Compute COLUMNS outputs of all rows a program: what it reads of the weights it reads once.

    A row's bits do not depend on the other rows.
    """
    column = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    real = column < outputs
    at = tl.arange(0, STEP)
    origin = weight + column.to(tl.int64)[:, None] * INPUTS + at[None]
    other = origin + outputs.to(tl.int64) * INPUTS
    wanted = real[:, None] & (at < INPUTS)[None]
    # Weights are there before the step begins: they come while what was launched before runs.
    first = tl.load(origin, wanted, 0.0)
    second = tl.zeros([COLUMNS, STEP], x.dtype.element_ty)
    if GATE:
        second = tl.load(other, wanted, 0.0)
    await_others(EARLY)
    for row in range(rows):
        sums = tl.zeros([COLUMNS, STEP], tl.float32)
        gates = tl.zeros([COLUMNS, STEP], tl.float32)
        squares = tl.zeros([STEP], tl.float32)
        for start in tl.static_range(0, INPUTS, STEP):
            inside = start + at < INPUTS
            entries = tl.load(x + row * INPUTS + start + at, inside, 0.0).to(tl.float32)
            if NORM:
                squares += entries * entries
                entries = entries * tl.load(gain + start + at, inside, 0.0).to(tl.float32)
            wanted = real[:, None] & inside[None]
            factor = first if start == 0 else tl.load(origin + start, wanted, 0.0)
            sums += factor.to(tl.float32) * entries[None]
            if GATE:
                factor = second if start == 0 else tl.load(other + start, wanted, 0.0)
                gates += factor.to(tl.float32) * entries[None]
        found = tl.sum(sums, 1)
        up = tl.sum(gates, 1)
        if NORM:
            factor = tl.rsqrt(tl.sum(squares, 0) / INPUTS + eps)
            found = found * factor
            up = up * factor
        if BIAS:
            found += tl.load(bias + column, real, 0.0).to(tl.float32)
            if GATE:
                up += tl.load(bias + outputs + column, real, 0.0).to(tl.float32)
        if GATE:
            found = _gated(found, up, GELU)
        if RELU:
            found = tl.where(found > 0.0, found, found * 0.0)  # a NaN stays one
        target = out + row * outputs + column
        if ADD:
            found += tl.load(target, real, 0.0).to(tl.float32)
        tl.store(target, found.to(out.dtype.element_ty), real)


def project(
    x: Tensor,
    weight: Tensor,
    gain: Tensor,
    eps: float,
    activation: str,
    bias: Tensor | None = None,
) -> Tensor:
    """As `models.cuda.kernels.reference.project`."""
    width = len(weight) // halves(activation)
    if len(x) <= FEW:
        out = x.new_empty(len(x), width)
        _product(x, weight, out, bias, gain, eps, activation)
        return out
    y = F.linear(norm(x, gain, eps), weight, bias)
    if not activation:
        return y
    if activation == "relu":
        return F.relu(y)
    out = y.new_empty(len(y), width)
    grid = (len(y), triton.cdiv(width, _BLOCK))
    launch(gated_kernel, grid, y, out, width, activation == "gelu", _BLOCK)
    return out


def add_product(total: Tensor, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> None:
    """As `models.cuda.kernels.reference.add_product`."""
    if len(x) > FEW:
        reference.add_product(total, x, weight, bias)
    else:
        _product(x, weight, total, bias)


def _product(
    x: Tensor,
    weight: Tensor,
    out: Tensor,
    bias: Tensor | None,
    gain: Tensor | None = None,
    eps: float = 0.0,
    activation: str = "",
) -> None:
    """Write to ``out``, or add to it where nothing is normed."""
    x = x.contiguous()
    inputs = x.shape[1]
    outputs = out.shape[1]
    columns, step = product_tile(inputs, outputs)
    launch(
        product_kernel, (triton.cdiv(outputs, columns),), x, x if gain is None else gain, weight,
        x if bias is None else bias, out, len(x), outputs, eps, inputs, gain is not None,
        halves(activation) == 2, activation == "gelu", activation == "relu", bias is not None,
        gain is None, columns, step, warps=8 if step > 1024 else 4,
    )  # fmt: skip


@triton.jit
def store_kernel(
    qkv, rotations, queries, keys, values, places,
    HEADS: tl.constexpr, KV_HEADS: tl.constexpr, HALF: tl.constexpr, EACH: tl.constexpr,
    BLOCK: tl.constexpr, EIGHT: tl.constexpr, EARLY: tl.constexpr,
):  # fmt: skip
    """Rotate EACH heads of queries and keys of one row a program, and store keys and values."""
    await_others(EARLY)
    row = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1) * EACH + tl.arange(0, EACH)[:, None]
    at = tl.arange(0, BLOCK)[None]
    inside = (head < HEADS + 2 * KV_HEADS) & (at < HALF)
    origin = qkv + (row * (HEADS + 2 * KV_HEADS) + head) * 2 * HALF + at
    first = tl.load(origin, inside, 0.0)
    second = tl.load(origin + HALF, inside, 0.0)
    cos = tl.load(rotations + (row * HALF + at) * 2, at < HALF, 0.0)
    sin = tl.load(rotations + (row * HALF + at) * 2 + 1, at < HALF, 0.0)
    wide = first.to(tl.float32)
    other = second.to(tl.float32)
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
    first = _finite(first)
    second = _finite(second)
    origin = rows + place * KV_HEADS * 2 * HALF
    if EIGHT:
        origin += place * KV_HEADS * 4  # the scales of each position before
        wide = first.to(tl.float32)
        other = second.to(tl.float32)
        largest = tl.max(tl.where(wanted, tl.maximum(tl.abs(wide), tl.abs(other)), 0.0), 1)
        scale = tl.div_rn(largest, 127.0)[:, None]
        first = _steps(wide, scale)
        second = _steps(other, scale)
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
    kv_heads = keys.shape[1]
    qkv = qkv.contiguous()
    heads = all_heads - 2 * kv_heads
    queries = qkv.new_empty(rows, heads, head_dim)
    pairs = torch.view_as_real(rotations).contiguous()
    launch(
        store_kernel, (rows, triton.cdiv(all_heads, _HEADS)), qkv, pairs, queries, keys, values,
        places.contiguous(), heads, kv_heads, head_dim // 2, _HEADS,
        triton.next_power_of_2(head_dim // 2), keys.dtype == torch.int8, warps=1,
    )  # fmt: skip
    return queries

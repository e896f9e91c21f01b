"""Attention over the pages of a pool where they lie. Imports Triton.

Each program attends from some new positions of one sequence, for one KV head, over a share of the
sequence's positions, page by page with a running maximum (Milakov and Gimelshein 2018,
arXiv:1805.02867; Dao et al. 2022, arXiv:2205.14135). Where sequences and heads are too few to fill
a card, positions are shared out among several programs, and a second kernel combines what they
found (Flash-Decoding, Dao et al. 2023). Nothing past what a position sees is read.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from gpu.launch import await_others, launch
from models.cuda.kernels.sharing import LEAST, PAGE, power_of_2, sharing


@triton.jit
def attend_kernel(
    queries, keys, values, seen, pages, out, parts, scale,
    pages_stride, count, GROUP: tl.constexpr, KV_HEADS: tl.constexpr, HEAD_DIM: tl.constexpr,
    SHARES: tl.constexpr, ROWS: tl.constexpr, POSITIONS: tl.constexpr, BLOCK: tl.constexpr,
    FACTOR: tl.constexpr, EIGHT: tl.constexpr, EARLY: tl.constexpr,
):  # fmt: skip
    """Attend from ROWS queries of one KV head of one sequence, over a share of its positions."""
    await_others(EARLY)
    sequence = (tl.program_id(1) // KV_HEADS).to(tl.int64)
    head = tl.program_id(1) % KV_HEADS
    share = tl.program_id(2)
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    at = tl.arange(0, BLOCK)
    real = row < count * GROUP
    position = sequence * count + row // GROUP
    own_head = head * GROUP + row % GROUP

    wanted = real[:, None] & (at < HEAD_DIM)[None]
    origin = queries + (position * KV_HEADS * GROUP + own_head) * HEAD_DIM
    query = tl.load(origin[:, None] + at[None], wanted, 0.0).to(FACTOR)
    sees = tl.load(seen + position, real, 0)
    longest = tl.max(sees, 0)
    blocks = tl.cdiv(longest, POSITIONS)
    each = tl.cdiv(blocks, SHARES)

    best = tl.full([ROWS], float("-inf"), tl.float32)
    total = tl.zeros([ROWS], tl.float32)
    mixed = tl.zeros([ROWS, BLOCK], tl.float32)
    for block in range(share * each, tl.minimum((share + 1) * each, blocks)):
        place = block * POSITIONS + tl.arange(0, POSITIONS)
        page = tl.load(pages + sequence * pages_stride + block)
        stored = page * POSITIONS + tl.arange(0, POSITIONS)
        cached = (stored * KV_HEADS + head) * HEAD_DIM
        if EIGHT:
            cached += stored * KV_HEADS * 4  # the scales of each position before
        known = place < longest
        held = known[:, None] & (at < HEAD_DIM)[None]
        key = tl.load(keys + cached[:, None] + at[None], held, 0).to(FACTOR)
        scores = tl.dot(query, tl.trans(key), input_precision="ieee") * scale
        if EIGHT:
            scale_at = stored * (KV_HEADS * (HEAD_DIM + 4) // 4) + KV_HEADS * HEAD_DIM // 4 + head
            key_scales = tl.load(keys.to(tl.pointer_type(tl.float32)) + scale_at, known, 0.0)
            scores = scores * key_scales[None]
        scores = tl.where(place[None] < sees[:, None], scores, float("-inf"))
        higher = tl.maximum(best, tl.max(scores, 1))
        # A row that has seen nothing yet has no maximum.
        level = tl.where(higher == float("-inf"), 0.0, higher)
        weights = tl.exp(scores - level[:, None])
        kept = tl.exp(best - level)
        value = tl.load(values + cached[:, None] + at[None], held, 0).to(FACTOR)
        total = total * kept + tl.sum(weights, 1)
        if EIGHT:
            value_scales = tl.load(values.to(tl.pointer_type(tl.float32)) + scale_at, known, 0.0)
            weights = weights * value_scales[None]
        mixed = mixed * kept[:, None] + tl.dot(weights.to(FACTOR), value, input_precision="ieee")
        best = higher

    if SHARES == 1:
        target = out + (position * KV_HEADS * GROUP + own_head) * HEAD_DIM
        mixed = mixed / tl.where(real, total, 1.0)[:, None]
        tl.store(target[:, None] + at[None], mixed.to(out.dtype.element_ty), wanted)
    else:
        part = ((position * KV_HEADS * GROUP + own_head) * SHARES + share) * (HEAD_DIM + 2)
        tl.store(parts + part[:, None] + at[None], mixed, wanted)
        tl.store(parts + part + HEAD_DIM, best, real)
        tl.store(parts + part + HEAD_DIM + 1, total, real)


@triton.jit
def combine_kernel(
    parts, out, SHARES: tl.constexpr, HEAD_DIM: tl.constexpr, BLOCK: tl.constexpr,
    EARLY: tl.constexpr,
):  # fmt: skip
    """Combine what all shares found for one head of one position."""
    await_others(EARLY)
    one = tl.program_id(0).to(tl.int64)
    share = tl.arange(0, SHARES)
    at = tl.arange(0, BLOCK)
    part = parts + (one * SHARES + share) * (HEAD_DIM + 2)
    inside = (at < HEAD_DIM)[None] & (share >= 0)[:, None]
    mixed = tl.load(part[:, None] + at[None], inside, 0.0)
    best = tl.load(part + HEAD_DIM)
    total = tl.load(part + HEAD_DIM + 1)
    highest = tl.max(best, 0)
    weights = tl.exp(best - tl.where(highest == float("-inf"), 0.0, highest))
    found = tl.sum(mixed * weights[:, None], 0) / tl.sum(total * weights, 0)
    tl.store(out + one * HEAD_DIM + at, found.to(out.dtype.element_ty), at < HEAD_DIM)


def attend(queries: Tensor, keys: Tensor, values: Tensor, seen: Tensor, pages: Tensor) -> Tensor:
    """As `models.cuda.kernels.reference.attend`."""
    (heads, head_dim) = queries.shape[1:]
    kv_heads = keys.shape[1]
    (sequences, count) = seen.shape
    group = heads // kv_heads
    columns = pages.shape[1] * PAGE
    rows, tiles, shares = sharing(count * group, sequences, kv_heads, columns, queries.dtype)
    block = max(power_of_2(head_dim), LEAST)
    pages = pages if pages.stride(1) == 1 else pages.contiguous()
    queries = queries.contiguous()
    seen = seen.contiguous()
    # What is multiplied is of its own type, but in Triton's interpreter, which has no bfloat16.
    narrow = queries.dtype == torch.bfloat16 and not triton.knobs.runtime.interpret
    out = queries.new_empty(len(queries), heads * head_dim)
    parts = out
    if shares > 1:
        parts = out.new_empty(len(queries), heads, shares, head_dim + 2, dtype=torch.float32)
    launch(
        attend_kernel, (tiles, sequences * kv_heads, shares), queries, keys, values, seen, pages,
        out, parts, head_dim**-0.5, pages.stride(0), count, group, kv_heads, head_dim, shares,
        rows, PAGE, block, tl.bfloat16 if narrow else tl.float32, keys.dtype == torch.int8,
    )  # fmt: skip
    if shares > 1:
        grid = (len(queries) * heads,)
        launch(combine_kernel, grid, parts, out, shares, head_dim, block, warps=1)
    return out

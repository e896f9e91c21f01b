"""The sample of plain rows in one kernel. Imports Triton.

The filters need no sorted logits: each keeps what reaches a floor, and a floor is found by dividing
the range of float32 numbers by four, 16 times; they are ordered as the integers of their bits are.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from gpu.launch import await_others, launch
from samplers.ar.state import PREDICTED, HostColumn
from samplers.ops import penalties
from samplers.ops.rows import LARGEST_LOGIT
from samplers.ops.sample import HASH
from samplers.ops.temperature import COLDEST, LARGEST
from samplers.plain import WINDOW, PlainTable

ACTIVE, LIMIT = (tl.constexpr(int(one)) for one in (HostColumn.ACTIVE, HostColumn.LIMIT))
AVOID_UNTIL, UNGUIDED_UNTIL = (
    tl.constexpr(int(one)) for one in (HostColumn.AVOID_UNTIL, HostColumn.UNGUIDED_UNTIL)
)
KEY, ATTEMPT, PARTNER = (
    tl.constexpr(int(one)) for one in (HostColumn.KEY, HostColumn.ATTEMPT, HostColumn.PARTNER)
)
PROMPTED = tl.constexpr(int(HostColumn.PROMPTED))
_PREDICTED = tl.constexpr(PREDICTED)
NUMBERS = tl.constexpr(len(HostColumn))

TEMPERATURE, TOP_K, TOP_P, MIN_P, KEEP, STRENGTH, RESCALE, LEAST, SPAN = (
    tl.constexpr(column) for column in range(9)
)
MODE, ONCE, FREQUENCY, PRESENCE = (tl.constexpr(column) for column in range(9, 13))
"""The columns of `samplers.plain.PlainRow`."""

GOLDEN, FIRST, SECOND = (tl.constexpr(one) for one in (HASH.golden, *HASH.mix))
_BY_STEP = tl.constexpr(HASH.axes[0])
BY_ATTEMPT = tl.constexpr(HASH.axes[2])
COLD = tl.constexpr(COLDEST)
HOT = tl.constexpr(LARGEST)
HIGHEST = tl.constexpr(LARGEST_LOGIT)

ADDITIVE = tl.constexpr(penalties.ADDITIVE)
RAW = tl.constexpr(penalties.RAW)
STRONGEST = tl.constexpr(penalties.STRONGEST_NATS)
UNIT = tl.constexpr(1.0 / penalties.FIXED_POINT)
LONGEST = tl.constexpr(WINDOW)

LOWEST = tl.constexpr(float(torch.finfo(torch.float32).min))

ROUNDS = tl.constexpr(16)
"""In which the floor of a filter is found, two bits of its 32 in each."""

_WARPS = 8


@triton.jit
def _mix(words):
    """Finish the hash of int64 words; see `samplers.ops.sample`."""
    words = (words ^ ((words >> 30) & ((1 << 34) - 1))) * FIRST
    words = (words ^ ((words >> 27) & ((1 << 37) - 1))) * SECOND
    return words ^ ((words >> 31) & ((1 << 33) - 1))


@triton.jit
def uniform(key, length, attempt, ids):
    """Return the noise of a code's sample for each id, as `samplers.ops.sample.uniform`."""
    words = _mix(key + length * _BY_STEP + attempt * BY_ATTEMPT)
    bits = _mix(words + (ids.to(tl.int64) + 1) * GOLDEN)
    fraction = ((bits >> 24) & ((1 << 40) - 1)).to(tl.float32)
    return tl.minimum((fraction + 0.5) * (2.0**-40), 1.0 - 2.0**-24)


@triton.jit
def _ordered(x):
    """Return float32 numbers as uint32 of the same order."""
    bits = x.to(tl.int32, bitcast=True)
    return (bits ^ ((bits >> 31) | -(1 << 31))).to(tl.uint32, bitcast=True)


@triton.jit
def _number(order):
    """Return the float32 number of a uint32 of `_ordered`."""
    bits = order.to(tl.int32, bitcast=True)
    return (bits ^ (~(bits >> 31) | -(1 << 31))).to(tl.float32, bitcast=True)


@triton.jit
def _add_three(first, second, third, other, another, last):
    return first + other, second + another, third + last


@triton.jit
def _floor(order, worth, total, share):
    """Return, as a uint32, the largest number that entries worth a share of the total reach."""
    # Two bits a round, from the highest on; three sums at once, as each waits for all threads.
    found = tl.full([], 0, tl.uint32)
    step = tl.full([], 1 << 30, tl.uint32)
    for _ in range(ROUNDS):
        first, second, third = tl.reduce(
            (
                tl.where(order >= found + step, worth, 0.0),
                tl.where(order >= found + 2 * step, worth, 0.0),
                tl.where(order >= found + 3 * step, worth, 0.0),
            ),
            0,
            _add_three,
        )
        enough = (first / total >= share).to(tl.uint32) + (second / total >= share).to(tl.uint32)
        found += step * (enough + (third / total >= share).to(tl.uint32))
        step = step >> 2
    return found


@triton.jit
def _top_k_floor(x, inside, k):
    """Return the k-th largest number."""
    return _number(_floor(_ordered(x), inside.to(tl.float32), 1.0, k.to(tl.float32)))


@triton.jit
def _top_p_floor(x, weights, best, p):
    """Return the least number such that the weight of all greater ones is a share below p."""
    floor = _floor(_ordered(x), weights, tl.sum(weights, 0), p)
    return _number(tl.minimum(floor, _ordered(best)))


@triton.jit
def _clean(x):
    """Return logits with NaN as -inf, and +inf as the highest; see `samplers.ops.filters`."""
    x = tl.where(x == x, x, float("-inf"))
    return tl.minimum(x, HIGHEST)


@triton.jit
def _deviation(x, inside, SIZE: tl.constexpr):
    """Return the standard deviation, unbiased."""
    away = tl.where(inside, x - tl.sum(tl.where(inside, x, 0.0), 0) / SIZE, 0.0)
    return tl.sqrt(tl.sum(away * away, 0) / (SIZE - 1))


@triton.jit
def _at(x, ids, one):
    """Return the entry with an id."""
    return tl.sum(tl.where(ids == one, x, 0.0), 0)


@triton.jit
def _penalised(
    x, ids, inside, own, nats, bias, sums, history, counted, length,
    STOP: tl.constexpr, SIZE: tl.constexpr,
):  # fmt: skip
    """Return the logits of a row with its bias, its least length and its penalties."""
    x += tl.load(bias + ids, inside, 0.0)
    x = tl.where((ids == STOP) & (length < tl.load(own + LEAST).to(tl.int64)), float("-inf"), x)
    span = tl.minimum(tl.load(own + SPAN).to(tl.int64), tl.minimum(counted, LONGEST))
    if span > 0:
        back = tl.arange(0, LONGEST)
        code = tl.load(history + counted - 1 - back, back < span, -1).to(tl.int32)
        known = (code >= 0) & (code < SIZE)
        adds = back >= 0
        if tl.load(own + ONCE) > 0:
            tl.store(sums + ids, tl.full(ids.shape, LONGEST, tl.int64), inside)
            tl.debug_barrier()
            tl.atomic_min(sums + code, back.to(tl.int64), known, sem="relaxed", scope="cta")
            tl.debug_barrier()
            adds = tl.load(sums + code, known, 0) == back  # of each code the newest
            tl.debug_barrier()
        # Integers, whose sum has no order: of nats, and in the lowest 8 bits how often, at most
        # LONGEST times. An occurrence has at most 720 nats, so that 64 bits hold their sum.
        word = tl.where(adds, tl.load(nats + back), 0) * 256 + 1
        tl.store(sums + ids, tl.zeros_like(ids).to(tl.int64), inside)
        tl.debug_barrier()
        tl.atomic_add(sums + code, word, known, sem="relaxed", scope="cta")
        tl.debug_barrier()
        found = tl.load(sums + ids, inside, 0)
        total = found >> 8
        count = (found & 255).to(tl.int32)
        lowered = tl.minimum(tl.maximum(total.to(tl.float32) * UNIT, -STRONGEST), STRONGEST)
        mode = tl.load(own + MODE).to(tl.int32)
        factor = tl.exp(tl.where((x > 0) | (mode == RAW), -lowered, lowered))
        x = tl.minimum(tl.where(mode == ADDITIVE, x - lowered, x * factor), HIGHEST)
        x = x - count.to(tl.float32) * tl.load(own + FREQUENCY).to(tl.float32)
        x = x - (count > 0).to(tl.float32) * tl.load(own + PRESENCE).to(tl.float32)
    return x


@triton.jit
def sample_kernel(
    logits, numbers, avoid, codes, lengths, stopped, results, knobs, nats, bias, sums,
    codes_stride, knobs_stride, nats_stride, bias_stride,
    STOP: tl.constexpr, SIZE: tl.constexpr, BLOCK: tl.constexpr, EARLY: tl.constexpr,
):  # fmt: skip
    """Sample the code of one row a program, and append it."""
    await_others(EARLY)
    row = tl.program_id(0).to(tl.int64)
    ids = tl.arange(0, BLOCK)
    inside = ids < SIZE
    own = numbers + row * NUMBERS
    partner = tl.load(own + PARTNER)
    length = tl.load(lengths + row)
    knob = knobs + row * knobs_stride

    # Guidance, and what attempts before this one must not sample again.
    given = tl.load(logits + row * SIZE + ids, inside, float("-inf"))
    behind = tl.num_programs(0) + row
    place = tl.where(partner == _PREDICTED, behind, partner)
    null = tl.load(logits + place * SIZE + ids, inside, float("-inf"))
    broken = tl.max((inside & ((given != given) | (null != null))).to(tl.int32), 0)
    x = given
    if (partner != row) & (length >= tl.load(own + UNGUIDED_UNTIL)):
        strength = tl.load(knob + STRENGTH).to(tl.float32)
        rescale = tl.load(knob + RESCALE).to(tl.float32)
        x = tl.where(inside, null + (given - null) * strength, float("-inf"))
        spread = _deviation(x, inside, SIZE)
        ratio = tl.where(spread > 0, _deviation(given, inside, SIZE) / spread, 1.0)
        x = x * (rescale * ratio + (1 - rescale))
    if length < tl.load(own + AVOID_UNTIL):
        x += tl.load(avoid + row * SIZE + ids, inside, 0.0)
    x = tl.where(inside, _clean(x), float("-inf"))
    x = _penalised(
        x, ids, inside, knob, nats + row * nats_stride, bias + row * bias_stride,
        sums + row * SIZE, codes + row * codes_stride, tl.load(own + PROMPTED) + length, length,
        STOP, SIZE,
    )  # fmt: skip

    # Temperature; a greedy row keeps its best code alone.
    temperature = tl.load(knob + TEMPERATURE).to(tl.float32)
    if temperature > 0:
        x = tl.minimum(tl.div_rn(x, tl.minimum(tl.maximum(temperature, COLD), HOT)), HOT)
    else:
        x = tl.where(ids == tl.argmax(x, 0), x, float("-inf"))
    best = tl.max(x, 0)
    level = tl.where(best == float("-inf"), 0.0, best)

    # Filters.
    top_k = tl.load(knob + TOP_K).to(tl.int64)
    if top_k < SIZE:
        x = tl.where(x < _top_k_floor(x, inside, top_k), float("-inf"), x)
    weights = tl.exp(x - level)
    top_p = tl.load(knob + TOP_P).to(tl.float32)
    if top_p < float("inf"):
        floor = _top_p_floor(x, weights, best, top_p)
        x = tl.where(x < floor, float("-inf"), x)
    min_p = tl.load(knob + MIN_P).to(tl.float32)
    if min_p > 0:
        keep = tl.load(knob + KEEP).to(tl.int64)
        floor = tl.minimum(best + tl.minimum(tl.log(min_p), 0.0), best)
        if keep > 1:
            floor = tl.minimum(floor, _top_k_floor(x, inside, keep))
        x = tl.where(x < floor, float("-inf"), x)

    # The sample: a race of exponentials. ln(1 - u) is exact to a few bits for the least u, too.
    noise = uniform(tl.load(own + KEY), length, tl.load(own + ATTEMPT), ids)
    rest = 1.0 - noise
    exact = tl.where(rest == 1.0, 1.0, rest - 1.0)
    late = tl.where(rest == 1.0, noise, tl.log(rest) * (noise / exact))
    code = tl.argmax(tl.where(inside, tl.exp(x - level) / late, -1.0), 0)
    if temperature <= 0:
        code = tl.argmax(x, 0)
    empty = _at(tl.where(x == float("-inf"), 1.0, 0.0), ids, code) > 0

    # What becomes of the row.
    code = code.to(tl.int64)
    was = tl.load(stopped + row).to(tl.int1)
    ended = was | empty | (code == STOP) | (length >= tl.load(own + LIMIT))
    code = tl.where(ended, STOP, code)
    active = tl.load(own + ACTIVE) > 0
    tl.store(codes + row * codes_stride + tl.load(own + PROMPTED) + length, code)
    tl.store(lengths + row, length + (active & (ended == 0)).to(tl.int64))
    tl.store(stopped + row, tl.where(active, ended, was))

    clean = tl.where(inside, _clean(given), float("-inf"))
    highest = tl.max(clean, 0)
    highest = tl.where(highest == float("-inf"), 0.0, highest)
    total = tl.sum(tl.exp(clean - highest), 0)
    log_prob = _at(clean, ids, code) - highest - tl.log(tl.where(total > 0, total, 1.0))
    # A code that cannot be sampled has the least number; where none can, -infinity.
    log_prob = tl.where(total > 0, tl.maximum(log_prob, LOWEST), float("-inf"))
    tl.store(results + row * 3, code.to(tl.float64))
    tl.store(results + row * 3 + 1, log_prob.to(tl.float64))
    tl.store(results + row * 3 + 2, broken.to(tl.float64))


def sample(logits: Tensor, numbers: Tensor, avoid: Tensor, knobs: Tensor, *state: Any) -> None:
    """As `samplers.plain.sample`."""
    *changed, stop_token = state
    rows = len(numbers)
    size = logits.shape[1]
    codes = changed[0]
    table = PlainTable.of(knobs, size)
    launch(
        sample_kernel, (rows,), logits.contiguous(), numbers, avoid, *changed, *table,
        codes.new_empty(rows, size), codes.stride(0), *(one.stride(0) for one in table),
        stop_token, size, triton.next_power_of_2(size), warps=_WARPS,
    )  # fmt: skip

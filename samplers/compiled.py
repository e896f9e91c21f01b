"""The sample of plain rows in one function that is compiled for a CPU: see `samplers.plain`.

The filters need no sorted logits: each keeps what reaches a floor, and a floor is found by halving
the range of float32 numbers, which are ordered as the integers of their bits are. What entries
weigh is an integer, too, as only integers have the same sum in every order. So a row has the same
code in every batch and on every processor.
"""

import math
from typing import Any, Final

import numpy as np
from torch import Tensor

from cpu.arrays import Bools, Doubles, Floats, Int64s
from cpu.compiling import kernel
from samplers.ar.state import PREDICTED, HostColumn
from samplers.ops import penalties
from samplers.ops.rows import LARGEST_LOGIT
from samplers.ops.sample import HASH
from samplers.ops.temperature import COLDEST, LARGEST
from samplers.plain import WINDOW, PlainRow

_f32 = np.float32
_f64 = np.float64
_u64 = np.uint64

_ACTIVE = int(HostColumn.ACTIVE)
_LIMIT = int(HostColumn.LIMIT)
_AVOID_UNTIL = int(HostColumn.AVOID_UNTIL)
_UNGUIDED_UNTIL = int(HostColumn.UNGUIDED_UNTIL)
_KEY = int(HostColumn.KEY)
_ATTEMPT = int(HostColumn.ATTEMPT)
_PARTNER = int(HostColumn.PARTNER)
_PROMPTED = int(HostColumn.PROMPTED)
_PREDICTED = PREDICTED

(
    _TEMPERATURE, _TOP_K, _TOP_P, _MIN_P, _KEEP, _STRENGTH, _RESCALE, _LEAST, _SPAN, _MODE, _ONCE,
    _FREQUENCY, _PRESENCE,
) = range(13)  # fmt: skip
"""The columns of `samplers.plain.PlainRow`; behind them all are the nats, and then the bias."""
_NATS: Final = len(PlainRow._fields)
_BIAS: Final = _NATS + WINDOW

_GOLDEN, _FIRST, _SECOND = (_u64(one % 2**64) for one in (HASH.golden, *HASH.mix))
_BY_STEP, _BY_ATTEMPT = (_u64(HASH.axes[axis] % 2**64) for axis in (0, 2))

_NOTHING = _f32(-np.inf)
_HIGHEST = _f32(LARGEST_LOGIT)
_COLDEST = _f32(COLDEST)
_HOTTEST = _f32(LARGEST)
_LOWEST = float(np.finfo(np.float32).min)
_ADDITIVE = penalties.ADDITIVE
_RAW = penalties.RAW
_STRONGEST = _f32(penalties.STRONGEST_NATS)
_NAT = _f32(penalties.FIXED_POINT)

_WHOLE: Final = _f64(2.0**40)
"""What the likeliest code weighs."""
_INTEGERS: Final = _f64(2.0**52)
"""Added to a smaller number, it leaves that, rounded, in the lowest 52 bits."""
_FRACTION: Final = (1 << 52) - 1
_LEAST_NATS: Final = _f64(-103.0)
"""Below the best: float32 has no number that is as unlikely."""


@kernel
def _exp(x: float) -> float:
    """Return e**x for -700 < x <= 0, with a relative error below 1e-10."""
    # A power of two, by its bits, times Taylor's polynomial. Unlike libm's function it can be
    # vectorised in a loop.
    whole = np.int32(x * _f64(1.4426950408889634) - _f64(0.5))
    rest = x - _f64(whole) * _f64(0.6931471805599453)
    y = _f64(1.0 / 362880.0)
    y = y * rest + _f64(1.0 / 40320.0)
    y = y * rest + _f64(1.0 / 5040.0)
    y = y * rest + _f64(1.0 / 720.0)
    y = y * rest + _f64(1.0 / 120.0)
    y = y * rest + _f64(1.0 / 24.0)
    y = y * rest + _f64(1.0 / 6.0)
    y = y * rest + _f64(0.5)
    y = y * rest + _f64(1.0)
    y = y * rest + _f64(1.0)
    power: float = np.int64((np.int64(whole) + 1023) << 52).view(np.float64)
    return y * power


@kernel
def _mix(word: np.uint64) -> np.uint64:
    """Finish the hash of a word; see `samplers.ops.sample`."""
    word = (word ^ (word >> _u64(30))) * _FIRST
    word = (word ^ (word >> _u64(27))) * _SECOND
    return word ^ (word >> _u64(31))


@kernel
def place_of(key: int, length: int, attempt: int) -> np.uint64:
    """Return the word of a place in a random stream, from which `uniform` makes noise."""
    return _mix(_u64(key) + _u64(length) * _BY_STEP + _u64(attempt) * _BY_ATTEMPT)


@kernel
def uniform(place: np.uint64, code: int) -> np.float32:
    """Return the noise of a code at a place, with the bits of `samplers.ops.sample.uniform`."""
    bits = _mix(place + _u64(code + 1) * _GOLDEN)
    fraction = _f32(np.int64(bits >> _u64(24)))
    return min((fraction + _f32(0.5)) * _f32(2.0**-40), _f32(1.0 - 2.0**-24))


@kernel
def _order(x: np.float32) -> int:
    """Return a float32 number as an integer of the same order."""
    bits = np.int64(_f32(x).view(np.int32))
    return int(bits if bits >= 0 else bits ^ np.int64(0x7FFFFFFF))


@kernel
def _number(order: int) -> np.float32:
    """Return the float32 number of an integer of `_order`."""
    bits = np.int32(order if order >= 0 else order ^ np.int64(0x7FFFFFFF))
    number: np.float32 = bits.view(np.float32)
    return number


@kernel
def _floor(orders: Int64s, worths: Int64s, least: float) -> np.float32:
    """Return the largest number that entries worth at least so much reach; all do together."""
    low = orders[0]
    high = orders[0]
    for at in range(len(orders)):
        low = min(low, orders[at])
        high = max(high, orders[at])
    while low < high:
        middle = low + (high - low + 1) // 2
        worth = 0
        for at in range(len(orders)):
            worth += worths[at] if orders[at] >= middle else 0
        if worth >= least:
            low = middle
        else:
            high = middle - 1
    return _number(low)


@kernel
def _top_k_floor(x: Floats, k: int, orders: Int64s, worths: Int64s) -> np.float32:
    """Return the k-th largest number; the last two are written."""
    for code in range(len(x)):
        orders[code] = _order(x[code])
        worths[code] = 1
    return _floor(orders, worths, k)


@kernel
def _top_p_floor(
    x: Floats, weights: Doubles, p: np.float32, orders: Int64s, worths: Int64s
) -> np.float32:
    """Return the least number such that the weight of all greater ones is a share below p."""
    total = 0
    for code in range(len(x)):
        worths[code] = _worth(weights[code])
        total += worths[code]
    # Codes that weigh less than this weigh less than the rest in all: the floor is above them.
    least = math.floor((1.0 - _f64(p)) * _f64(total) / len(x))
    count = 0
    for code in range(len(x)):
        if worths[code] >= least and x[code] > _NOTHING:
            worths[count] = worths[code]
            orders[count] = _order(x[code])
            count += 1
    return _floor(orders[:count], worths[:count], _f64(p) * _f64(total))


@kernel
def _worth(weight: float) -> int:
    """Return a weight of `_weigh` as an integer."""
    return int(_f64(weight * _WHOLE + _INTEGERS).view(np.int64)) & _FRACTION


@kernel
def _weigh(x: Floats, best: np.float32, weights: Doubles) -> None:
    """Write what each logit weighs beside the best, which weighs 1: float64, 0 where excluded."""
    for code in range(len(x)):
        nats = _f64(x[code] - best)
        weight = _exp(max(nats, _LEAST_NATS))
        weights[code] = weight if nats >= _LEAST_NATS else _f64(0.0)


@kernel
def _clean(x: np.float32) -> np.float32:
    """Return a logit, NaN as -inf and what is above the highest as that."""
    return _NOTHING if np.isnan(x) else min(x, _HIGHEST)


@kernel
def _deviation(x: Floats) -> np.float32:
    """Return the standard deviation, unbiased."""
    mean = _f64(0.0)
    for code in range(len(x)):
        mean += _f64(x[code])
    mean /= len(x)
    squares = _f64(0.0)
    for code in range(len(x)):
        squares += (_f64(x[code]) - mean) ** 2
    return _f32(math.sqrt(squares / (len(x) - 1)))


@kernel
def _guide(own: Floats, null: Floats, strength: np.float32, rescale: np.float32, x: Floats) -> None:
    """Write guided logits, as `samplers.ops.guidance.guide`."""
    for code in range(len(x)):
        x[code] = null[code] + (own[code] - null[code]) * strength
    if rescale > 0:
        spread = _deviation(x)
        ratio = _deviation(own) / spread if spread > 0 else _f32(1.0)
        share = rescale * ratio + (_f32(1.0) - rescale)
        for code in range(len(x)):
            x[code] *= share


@kernel
def _penalise(
    x: Floats, knobs: Doubles, nats: Int64s, recent: Int64s, sums: Int64s, counts: Int64s
) -> None:
    """Lower codes of ``recent``, newest last; the last two are zeros before and after."""
    held = len(recent)
    mode = int(knobs[_MODE])
    frequency = _f32(knobs[_FREQUENCY])
    presence = _f32(knobs[_PRESENCE])
    for back in range(held):
        code = recent[held - 1 - back]
        if counts[code] == 0 or knobs[_ONCE] == 0:  # once: of each code the newest
            sums[code] += nats[back]
        counts[code] += 1
    for back in range(held):
        code = recent[held - 1 - back]
        if counts[code]:
            lowered = min(max(_f32(sums[code]) / _NAT, -_STRONGEST), _STRONGEST)
            if mode == _ADDITIVE:
                x[code] -= lowered
            else:
                x[code] *= _f32(math.exp(-lowered if x[code] > 0 or mode == _RAW else lowered))
            x[code] = min(x[code], _HIGHEST) - _f32(counts[code]) * frequency - presence
            sums[code] = 0
            counts[code] = 0


@kernel
def _filter(
    x: Floats, knobs: Doubles, best: np.float32, weights: Doubles, orders: Int64s, worths: Int64s
) -> None:
    """Exclude what top-k, top-p and min-p do; the last three are written."""
    if knobs[_TOP_K] < len(x):
        _keep_from(x, _top_k_floor(x, int(knobs[_TOP_K]), orders, worths))
    _weigh(x, best, weights)
    if knobs[_TOP_P] < np.inf:
        _keep_from(x, _top_p_floor(x, weights, _f32(knobs[_TOP_P]), orders, worths))
    if knobs[_MIN_P] > 0:
        nats = _f32(math.log(_f64(_f32(knobs[_MIN_P]))))
        floor = best + min(nats, _f32(0.0))
        if knobs[_KEEP] > 1:
            floor = min(floor, _top_k_floor(x, int(knobs[_KEEP]), orders, worths))
        _keep_from(x, floor)


@kernel
def _keep_from(x: Floats, floor: np.float32) -> None:
    for code in range(len(x)):
        x[code] = x[code] if x[code] >= floor else _NOTHING


@kernel
def _race(x: Floats, weights: Doubles, place: np.uint64) -> int:
    """Return the code that wins the race of exponentials: see `samplers.ops.sample.categorical`."""
    found = 0
    fastest = _f64(-1.0)
    for code in range(len(x)):
        if x[code] > _NOTHING:
            noise = _f64(uniform(place, code))
            # Each waits for at least its noise: most need no logarithm to be too late.
            if weights[code] > fastest * noise:
                speed = weights[code] / -math.log1p(-noise)
                if speed > fastest:
                    fastest = speed
                    found = code
    return found


@kernel
def _log_prob(own: Floats, code: int, x: Floats, weights: Doubles) -> float:
    """Return the log-probability of a code, nats; the last two are written."""
    # A code that cannot be sampled has the least number; where none can, -infinity.
    best = _NOTHING
    for one in range(len(own)):
        x[one] = _clean(own[one])
        best = max(best, x[one])
    if best == _NOTHING:
        return -np.inf
    _weigh(x, best, weights)
    total = 0
    for one in range(len(x)):
        total += _worth(weights[one])
    return max(_f64(x[code] - best) - math.log(_f64(total) / _WHOLE), _LOWEST)


@kernel
def sample_rows(
    logits: Floats,
    numbers: Int64s,
    avoid: Floats,
    knobs: Int64s,
    state: tuple[Int64s, Int64s, Bools, Doubles],
    stop_token: int,
) -> None:
    """As `sample`, of arrays; ``state`` are those that change."""
    codes, lengths, stopped, results = state
    size = logits.shape[1]
    x = np.empty(size, np.float32)
    weights = np.empty(size, np.float64)
    orders = np.empty(size, np.int64)
    worths = np.empty(size, np.int64)
    sums = np.zeros(size, np.int64)
    counts = np.zeros(size, np.int64)
    rows = len(numbers)
    for row in range(rows):
        if not numbers[row, _ACTIVE]:
            continue
        own = logits[row]
        partner = numbers[row, _PARTNER]
        null = logits[rows + row if partner == _PREDICTED else partner]
        length = lengths[row]
        record = knobs[row, :_NATS].view(np.float64)
        bias = knobs[row, _BIAS:].view(np.float32)

        # Guidance, and what attempts before this one must not sample again.
        broken = 0
        for code in range(size):
            broken += np.isnan(own[code]) | np.isnan(null[code])
        if partner == row or length < numbers[row, _UNGUIDED_UNTIL]:
            x[:] = own
        else:
            _guide(own, null, _f32(record[_STRENGTH]), _f32(record[_RESCALE]), x)
        if length < numbers[row, _AVOID_UNTIL]:
            x += avoid[row]
        for code in range(size):
            x[code] = _clean(x[code]) + bias[code]
        if length < record[_LEAST]:
            x[stop_token] = _NOTHING
        held = numbers[row, _PROMPTED] + length
        span = min(int(record[_SPAN]), held, WINDOW)
        if span > 0:
            recent = codes[row, held - span : held]
            _penalise(x, record, knobs[row, _NATS:_BIAS], recent, sums, counts)

        temperature = _f32(record[_TEMPERATURE])
        chosen = 0
        if temperature > 0:
            divisor = min(max(temperature, _COLDEST), _HOTTEST)
            best = _NOTHING
            for code in range(size):
                x[code] = min(x[code] / divisor, _HOTTEST)
                best = max(best, x[code])
            if best > _NOTHING:
                _filter(x, record, best, weights, orders, worths)
                place = place_of(numbers[row, _KEY], length, numbers[row, _ATTEMPT])
                chosen = _race(x, weights, place)
        else:
            for code in range(size):
                if x[code] > x[chosen]:
                    chosen = code

        # What becomes of the row.
        ends = chosen == stop_token or length >= numbers[row, _LIMIT]
        stopped[row] = stopped[row] or ends or x[chosen] == _NOTHING
        if stopped[row]:
            chosen = stop_token
        else:
            lengths[row] = length + 1
        codes[row, held] = chosen
        results[row, 0] = chosen
        results[row, 1] = _log_prob(own, chosen, x, weights)
        results[row, 2] = broken > 0


def sample(logits: Tensor, numbers: Tensor, avoid: Tensor, knobs: Tensor, *state: Any) -> None:
    """As `samplers.plain.sample`; all lie on the host."""
    codes, lengths, stopped, results, stop_token = state
    changed = codes.numpy(), lengths.numpy(), stopped.numpy(), results.numpy()
    sample_rows(logits.numpy(), numbers.numpy(), avoid.numpy(), knobs.numpy(), changed, stop_token)

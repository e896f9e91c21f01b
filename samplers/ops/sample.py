"""Counter-based noise, and the greedy and categorical sample.

Every random number is a hash of where it is used: (seed, utterance, candidate, stage, level) name a
stream, (step, position, attempt, sample) a place in it, and the code's id the entry. So a sample
depends neither on the batch, nor on the row's place in it, nor on earlier samples.
"""

from enum import IntEnum
from typing import NamedTuple

import torch
from torch import Tensor

_WORD = (1 << 64) - 1
_GOLDEN = 0x9E3779B97F4A7C15
_MIX = (0xBF58476D1CE4E5B9, 0x94D049BB133111EB)
# Odd 64-bit constants, one an axis of a place: the fractional parts of the square roots of 2, 3, 5
# and 7, made odd.
_AXES = (0x6A09E667F3BCC909, 0xBB67AE8584CAA73B, 0x3C6EF372FE94F82B, 0xA54FF53A5F1D36F1)


class Stage(IntEnum):
    """The stage of the decoder that samples."""

    AR = 0
    NAR = 1
    MASKED = 2


class NoiseStream(IntEnum):
    """What a random number at one place is used for."""

    CODE = 0
    XTC = 1
    SECOND = 2
    CANDIDATE = 3  # the second of several candidates; 4 is the third, and so on


def _signed(word: int) -> int:
    """The int64 with the bits of the unsigned ``word``."""
    return word - (1 << 64) if word >> 63 else word


class Hash(NamedTuple):
    """The constants of the hash as int64, for kernels: of an entry, the finaliser, a place."""

    golden: int
    mix: tuple[int, int]
    axes: tuple[int, ...]


HASH = Hash(_signed(_GOLDEN), (_signed(_MIX[0]), _signed(_MIX[1])), tuple(map(_signed, _AXES)))


def _mix_int(word: int) -> int:
    word = ((word ^ (word >> 30)) * _MIX[0]) & _WORD
    word = ((word ^ (word >> 27)) * _MIX[1]) & _WORD
    return word ^ (word >> 31)


def _mix(words: Tensor) -> Tensor:
    """`_mix_int` for int64 ``words`` of any shape, in place; products wrap modulo 2^64."""
    for shift, factor in ((30, _MIX[0]), (27, _MIX[1])):
        words.bitwise_xor_((words >> shift).bitwise_and_((1 << 64 - shift) - 1))
        words.mul_(_signed(factor))
    return words.bitwise_xor_((words >> 31).bitwise_and_((1 << 33) - 1))


def stream_key(seed: int, utterance: int, stage: Stage, level: int = 0, candidate: int = 0) -> int:
    """Hash the name of a stream of noise, with 64 bits of the seed, into a key for `uniform`."""
    key = 0
    for word in (seed, utterance, candidate, int(stage), level):
        key = _mix_int((key + _GOLDEN + word) & _WORD)
    return _signed(key)


def forked_keys(keys: Tensor, number: int) -> Tensor:
    """Return the keys of fork number 1, 2, ... of random streams, as ``keys`` ``(B, 1)`` int64."""
    return _mix(keys + _signed(number * _GOLDEN & _WORD))


def uniform(
    keys: Tensor,
    width: int,
    *,
    step: Tensor | int = 0,
    position: Tensor | int = 0,
    attempt: Tensor | int = 0,
    sample: Tensor | int = 0,
) -> Tensor:
    """Return uniform numbers for ``width`` entries a row; a pure function of its arguments.

    Args:
        keys: ``(B, 1)`` int64, of `stream_key`.
        width: Entries a row, usually V.
        step: ``(B, 1)`` int64 or a number, as the next two: which AR token, or masked pass.
        position: Which frame.
        attempt: How often the row was rewound.
        sample: Which of several samples at one place, a `NoiseStream`; ``(n, 1, 1)`` int64: all of
        them.

    Returns:
        ``(B, width)`` float32 strictly inside (0, 1), or ``(n, B, width)``. Near 0 the spacing is
        that of 40-bit fractions, so a race of exponentials keeps very unlikely codes possible.

    Source: the finaliser of splitmix64, Steele, Lea and Flood 2014 (variant 13 of Stafford).
    """
    offset = 0
    words = keys
    for axis, count in zip(_AXES, (step, position, attempt, sample), strict=True):
        if isinstance(count, Tensor):
            words = words.add(count, alpha=_signed(axis))
        else:
            offset += count * axis
    if offset or words is keys:  # what follows is in place
        words = words + _signed(offset & _WORD)
    entries = torch.arange(1, width + 1, device=keys.device).mul_(_signed(_GOLDEN))
    bits = _mix(_mix(words) + entries)
    fraction = (bits >> 24).bitwise_and_((1 << 40) - 1).to(torch.float32)
    # The largest fractions round to 1 in float32, which a race would turn into infinity.
    return fraction.add_(0.5).mul_(2.0**-40).clamp_(max=1 - 2.0**-24)


def greedy(logits: Tensor) -> Tensor:
    """Return the id of each row's largest logit, the lowest id on a tie, ``(B,)`` int64."""
    return logits.argmax(-1)  # torch promises the first of several maxima


def categorical(logits: Tensor, noise: Tensor) -> Tensor:
    """Sample from ``softmax(logits)``, ``(..., B)`` int64, by a race of exponentials.

    It is the argmax of p_i / E_i, where E_i = -ln(1 - noise_i); ``noise`` is ``(..., B, V)`` of
    `uniform`. A row needs one entry that is not -inf.

    Source: Gumbel 1954; as a race, Efraimidis and Spirakis 2006.
    """
    return _race(logits, noise).argmin(-1)


def without_replacement(logits: Tensor, noise: Tensor, count: int) -> Tensor:
    """Sample ``count`` different ids, ``(B, count)`` int64; -1 where a row has no more.

    The first is the one that `categorical` samples with the same noise.

    Source: Gumbel-top-k, Kool, van Hoof and Welling 2019 (arXiv:1903.06059).
    """
    arrived, ids = _race(logits, noise).topk(min(count, logits.shape[-1]), largest=False)
    padding = (0, count - ids.shape[1])
    return torch.nn.functional.pad(ids.masked_fill(arrived == 0, -1), padding, value=-1)


def _race(logits: Tensor, noise: Tensor) -> Tensor:
    """Return -p_i / E_i, of the shape of the noise: the smallest wins."""
    waits = torch.log1p(-noise)  # -E_i
    return torch.div(torch.softmax(logits, -1), waits, out=waits)

"""What is measured of a take, from its report and its samples."""

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

MEASURE_TITLES: Final[Mapping[str, str]] = {
    "seconds": "seconds of sound",
    "faults": "share of takes that ended as stuck, length or empty",
    "repeats": "share of codes that are among the ten before them",
    "silence": "share of the sound below -30 dB of its loudest window",
    "entropy": "mean entropy of the codes, bits",
    "nats": "mean log-probability of the codes, nats",
    "changed": "mean number of logits that a penalty or bias changed",
    "after": "seconds of sound after the last word of an utterance, the most of a take",
    "missing": "share of the words that the alignment does not find",
    "hurry": "letters a second in the last third over those in the first",
}
"""Names of the measures that are always there, and what they say."""

_NEAR = 10
_WINDOW_S = 0.02
_QUIET_DB = -30.0
_FEWEST_WORDS = 6


def measure_speech(
    report: Mapping[str, Any], samples: NDArray[np.float32], rate_hz: int
) -> dict[str, float]:
    """Return the measures of a take ``[N]``.

    `after` is there only where the alignment was followed, the last two where words have times.

    ``report`` is that of the API, with its trace.
    """
    spoken = report["utterances"]
    tokens = [token for one in spoken for token in one["tokens"] or ()]
    codes = [np.array(one["codes"])[:, 0] for one in spoken if one["codes"]]
    near = sum(_near(one) for one in codes)
    measures = {
        "seconds": round(len(samples) / rate_hz, 6),
        "faults": float(report["finish_reason"] in {"stuck", "length", "empty"}),
        "repeats": near / max(1, sum(map(len, codes))),
        "silence": _quiet(samples, rate_hz),
        "entropy": _mean([token["entropy_bits"] for token in tokens]),
        "nats": _mean([token["logprob"] for token in tokens]),
        "changed": _mean([token["changed"] for token in tokens]),
    }
    after = [one["sound_after_s"] for one in spoken if one.get("sound_after_s") is not None]
    if after:
        measures["after"] = max(after)
    words = [word for one in spoken for word in one.get("words") or ()]
    if words:
        measures["missing"] = _mean([float(word["missing"]) for word in words])
    heard = [word for word in words if not word["missing"] and word["end_s"] is not None]
    if len(heard) >= _FEWEST_WORDS:
        measures["hurry"] = _hurry(heard)
    return {name: round(value, 6) for name, value in measures.items()}


def _near(codes: NDArray[np.int64]) -> int:
    """Return how many codes are among the ten before them."""
    back = [codes[distance:] == codes[:-distance] for distance in range(1, _NEAR + 1)]
    found = np.zeros(len(codes), dtype=bool)
    for distance, same in enumerate(back, 1):
        found[distance:] |= same
    return int(found.sum())


def _quiet(samples: NDArray[np.float32], rate_hz: int) -> float:
    size = round(_WINDOW_S * rate_hz)
    count = len(samples) // size
    if not count:
        return 0.0
    power = np.square(samples[: count * size], dtype=np.float64).reshape(count, size).mean(axis=1)
    return float((power <= power.max() * 10 ** (_QUIET_DB / 10)).mean())


def _mean(values: list[float | None]) -> float:
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if known else 0.0


def _hurry(words: list[Mapping[str, Any]]) -> float:
    third = max(2, len(words) // 3)
    first, last = (
        sum(len(word["word"]) for word in some) / max(1e-3, some[-1]["end_s"] - some[0]["start_s"])
        for some in (words[:third], words[-third:])
    )
    return float(last / max(1e-3, first))

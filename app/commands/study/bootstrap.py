"""How sure a figure is: 95 % intervals by drawing the sentences again, with replacement.

Every figure of an evaluation or a study is a ratio of two sums over sentences (errors to words,
events to recordings, seconds to seconds). Recordings of one sentence resemble each other, so whole
sentences are drawn, with all of their seeds: single recordings would call the figures too sure.
"""

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Sums: TypeAlias = NDArray[np.float64]  # [sentences]

RESAMPLES = 5_000
SEED = 0  # the same sentences are drawn for every figure
OUTSIDE = 0.05  # of the draws, half on each side of the interval


@dataclass(frozen=True)
class Estimate:
    """A figure and the borders of its 95 % interval."""

    value: float
    low: float
    high: float

    def scaled(self, factor: float) -> "Estimate":
        """Return the same figure in another unit."""
        return Estimate(self.value * factor, self.low * factor, self.high * factor)


def estimate_ratio(numerators: Sums, denominators: Sums) -> Estimate:
    """Return sum of ``numerators`` over sum of ``denominators``, each ``[sentences]``."""
    resampled = _resample(len(numerators))
    ratios = numerators[resampled].sum(axis=1) / denominators[resampled].sum(axis=1)
    return _percentiles(float(numerators.sum() / denominators.sum()), ratios)


def estimate_share(events: Sums, trials: Sums) -> Estimate:
    """Return the share of trials with an event, each ``[sentences]``.

    The bootstrap can't see what never happened: it would call 0 of 300 certain. There the exact
    binomial bound is used, over sentences and not recordings, because the seeds of a sentence are
    not independent.
    """
    unseen = 1 - (OUTSIDE / 2) ** (1 / len(events))
    if events.sum() == 0:
        return Estimate(0.0, 0.0, unseen)
    if events.sum() == trials.sum():
        return Estimate(1.0, 1 - unseen, 1.0)
    return estimate_ratio(events, trials)


def estimate_difference(ours: tuple[Sums, Sums], theirs: tuple[Sums, Sums]) -> Estimate:
    """Return our ratio less theirs; both are (numerators, denominators) of the same sentences.

    Each draw takes the same sentences for both sides, so that what makes a sentence hard for both
    cancels out and the interval is narrower than that of either side.
    """
    resampled = _resample(len(ours[0]))
    ratios = [n[resampled].sum(axis=1) / d[resampled].sum(axis=1) for n, d in (ours, theirs)]
    value = float(ours[0].sum() / ours[1].sum() - theirs[0].sum() / theirs[1].sum())
    return _percentiles(value, ratios[0] - ratios[1])


def _resample(sentences: int) -> NDArray[np.int64]:
    return np.random.default_rng(SEED).integers(0, sentences, (RESAMPLES, sentences))


def _percentiles(value: float, resampled: Sums) -> Estimate:
    low, high = np.quantile(resampled, (OUTSIDE / 2, 1 - OUTSIDE / 2))
    return Estimate(value, float(low), float(high))

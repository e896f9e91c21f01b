"""Intervals of studies, compared with figures by hand and the share that they should bracket."""

import numpy as np
import pytest

from app.commands.study.bootstrap import estimate_difference, estimate_ratio, estimate_share


def test_an_interval_brackets_the_truth_about_95_times_in_100() -> None:
    random = np.random.default_rng(1)
    hits = 0
    for _ in range(200):
        words = random.integers(5, 12, 60).astype(float)
        errors = random.binomial(words.astype(int), 0.2).astype(float)
        estimate = estimate_ratio(errors, words)
        assert estimate.low <= estimate.value <= estimate.high
        hits += estimate.low <= 0.2 <= estimate.high
    assert 180 <= hits <= 199
    assert estimate_ratio(errors, words) == estimate


def test_what_never_happened_may_still_happen() -> None:
    never = estimate_share(np.zeros(100), np.full(100, 3.0))
    assert (never.value, never.low) == (0.0, 0.0)
    assert never.high == pytest.approx(0.0362, abs=1e-4)  # 1 - 0.025 ** (1 / 100)
    always = estimate_share(np.full(100, 3.0), np.full(100, 3.0))
    assert (always.value, always.high) == (1.0, 1.0)
    assert always.low == pytest.approx(1 - 0.0362, abs=1e-4)


def test_a_constant_distance_is_certain() -> None:
    theirs, words = np.arange(50.0) % 5, np.full(50, 8.0)
    estimate = estimate_difference((theirs + 1, words), (theirs, words))
    assert estimate.value == pytest.approx(1 / 8)
    assert estimate.high - estimate.low == pytest.approx(0.0, abs=1e-12)

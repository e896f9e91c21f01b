import numpy as np
import pytest

from lab.training.lm.codes import SILENCE_AFTER_S
from lab.training.lm.rests import FRAME_RATE_HZ, REST_S, rested, sample_rest

HAS = int(SILENCE_AFTER_S * FRAME_RATE_HZ)  # frames


@pytest.fixture
def random() -> np.random.Generator:
    return np.random.default_rng(0)


def test_rests_are_spread_over_all_of_their_range(random):
    found = [sample_rest(random) for _ in range(4000)]
    assert min(found) == round(REST_S[0] * FRAME_RATE_HZ)
    assert max(found) == round(REST_S[1] * FRAME_RATE_HZ)
    counts = np.bincount(found)[min(found) :]
    assert counts.min() > 0.6 * counts.mean()


@pytest.mark.parametrize("frames", range(4, 27))
def test_speech_stays_and_what_follows_is_silence_of_its_own(random, frames):
    codes = np.arange(2 * 40, dtype=np.int16).reshape(40, 2)
    found = rested(codes, frames, random)
    spoken = len(codes) - HAS
    assert len(found) == spoken + frames
    kept = min(len(found), len(codes))
    np.testing.assert_array_equal(found[:kept], codes[:kept])
    assert set(found[kept:, 0].tolist()) <= set(codes[spoken:-1, 0].tolist())

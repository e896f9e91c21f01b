import shutil

import numpy as np
import pytest

from training.speech.corpus import SAMPLE_RATE_HZ
from training.speech.readers import PACES, RATES, VOICES, coloured, readers, speak


def test_readers_stay_the_same_and_keep_within_bounds() -> None:
    many = readers(200)
    assert readers(5) == many[:5]
    assert len({one.name for one in many}) == 200
    assert {one.voice for one in many} == set(VOICES)
    for one in many:
        assert RATES[one.voice][0] <= one.rate <= RATES[one.voice][1]
        assert PACES[0] <= one.pace <= PACES[1]


def test_each_frequency_has_its_gain() -> None:
    noise = np.random.default_rng(0).normal(size=SAMPLE_RATE_HZ).astype(np.float32)
    np.testing.assert_allclose(coloured(noise, (2.0,) * 5), 2 * noise, rtol=1e-3, atol=1e-4)
    low = (1.0, 1.0, 0.0, 0.0, 0.0)  # nothing from a quarter of the rate on
    spectrum = np.abs(np.fft.rfft(coloured(noise, low)))
    assert spectrum[len(spectrum) // 2 :].max() < 1e-2 * spectrum[: len(spectrum) // 4].mean()


@pytest.mark.skipif(not shutil.which("flite"), reason="needs flite")
def test_a_reader_takes_as_long_as_its_pace_says_whatever_the_rate() -> None:
    text = "Most of our graduates are employed."
    lengths = [len(speak(text, one)) * one.pace for one in readers(12) if one.voice == "slt"]
    assert lengths == pytest.approx([np.median(lengths)] * len(lengths), rel=0.1)

"""What a recording leaves of speech: its length, its band, its noise, its codec."""

import numpy as np
import pytest

from lab.training.speech.channels import CODECS, Codec, Samples, coded, draw_channel, passed
from lab.training.speech.corpus import SAMPLE_RATE_HZ


@pytest.fixture
def random() -> np.random.Generator:
    return np.random.default_rng(0)


@pytest.fixture
def speech(random) -> Samples:
    """A second of something as wide as speech, in syllables."""
    seconds = np.arange(SAMPLE_RATE_HZ) / SAMPLE_RATE_HZ
    buzz = np.sum([np.sin(2 * np.pi * 130 * k * seconds) / k for k in range(1, 80)], 0)
    hiss = 0.3 * random.standard_normal(len(seconds))
    return np.asarray(0.1 * (buzz + hiss) * (1 + np.sin(8 * np.pi * seconds)), np.float32)


def energy(samples: Samples, low_hz: float, high_hz: float) -> float:
    spectrum = np.abs(np.fft.rfft(samples)) ** 2
    frequencies = np.fft.rfftfreq(len(samples), 1 / SAMPLE_RATE_HZ)
    return float(spectrum[(frequencies >= low_hz) & (frequencies < high_hz)].sum())


def test_channels_follow_from_their_seed_differ_and_leave_as_many_samples_in_range(speech, random):
    drawn, again = ([draw_channel(np.random.default_rng(k)) for k in range(40)] for _ in range(2))
    assert drawn == again
    assert len(set(drawn)) == 40
    for part in ("decay_s", "noise_db", "band_hz", "codec"):
        happened = [getattr(one, part) is not None for one in drawn]
        assert any(happened)
        assert not all(happened)
    for channel in drawn:
        heard = passed(speech, channel, random)
        assert heard.shape == speech.shape
        assert heard.dtype == np.float32
        assert 0.2 < np.abs(heard).max() < 1.6  # so finite, too


@pytest.mark.parametrize("codec", CODECS, ids=lambda codec: f"{codec.encoder}-{codec.rate_hz}")
def test_a_codec_gives_back_speech_within_its_band(codec: Codec, speech):
    heard = coded(speech, codec, codec.bit_rates[-1])
    assert abs(len(heard) - len(speech)) < 0.1 * SAMPLE_RATE_HZ
    top = codec.rate_hz / 2
    assert energy(heard, top * 1.1, 12_000) <= 1e-3 * energy(heard, 0, 12_000)
    assert energy(heard, 200, 3_000) == pytest.approx(energy(speech, 200, 3_000), rel=0.5)

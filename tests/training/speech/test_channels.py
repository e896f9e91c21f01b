"""What a recording leaves of speech: its length, its band, its noise, its codec."""

import numpy as np
import pytest

from training.speech.channels import (
    CODECS,
    Channel,
    Codec,
    Samples,
    coded,
    coloured_noise,
    draw_channel,
    impulse_response,
    passed,
)
from training.speech.corpus import SAMPLE_RATE_HZ


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


def test_an_empty_channel_changes_the_level_alone_a_band_takes_what_is_outside(speech, random):
    plain = passed(speech, Channel(), random)
    np.testing.assert_allclose(plain, speech * (0.9 / np.abs(speech).max()), rtol=1e-5)
    heard = passed(speech, Channel(band_hz=(200.0, 4_000.0)), random)
    assert energy(heard, 4_300, 12_000) < 1e-6 * energy(heard, 0, 12_000)
    kept = energy(heard, 500, 3_500) / energy(speech, 500, 3_500)
    assert energy(heard, 0, 100) / energy(speech, 0, 100) < 0.2 * kept
    clipped = passed(speech, Channel(clipped_at=0.5), random)
    assert np.mean(np.abs(clipped) > 0.899) > 20 * np.mean(np.abs(plain) > 0.891)


def test_noise_is_as_loud_as_asked_for(speech, random):
    plain, noisy = (passed(speech, Channel(noise_db=db), random) for db in (None, 10.0))
    scale = float(noisy @ plain / (plain @ plain))
    rest = noisy - scale * plain
    ratio_db = 10 * np.log10(((scale * plain) ** 2).sum() / (rest**2).sum())
    assert ratio_db == pytest.approx(10, abs=0.5)


@pytest.mark.parametrize("colour", [0.0, 1.0, 2.0])
def test_noise_falls_with_frequency_as_its_colour_says(colour, random):
    noise = coloured_noise(10 * SAMPLE_RATE_HZ, colour, random)
    fall = energy(noise, 4_000, 4_400) / energy(noise, 1_000, 1_400)
    assert fall == pytest.approx((4_200 / 1_200) ** -colour, rel=0.15)
    assert np.sqrt((noise**2).mean()) == pytest.approx(1, rel=1e-3)


def test_a_room_dies_away_as_fast_as_it_should_and_is_as_loud(random):
    room = impulse_response(0.5, -6.0, random)
    assert room[0] == 1
    assert 10 * np.log10((room[1:] ** 2).sum()) == pytest.approx(-6, abs=0.01)
    early, late = (room[start : start + 2400] for start in (1200, 7200))
    fall_db = 10 * np.log10((early**2).sum() / (late**2).sum())
    assert fall_db == pytest.approx(60 * 0.25 / 0.5, abs=2)


@pytest.mark.parametrize("codec", CODECS, ids=lambda codec: f"{codec.encoder}-{codec.rate_hz}")
def test_a_codec_gives_back_speech_within_its_band(codec: Codec, speech):
    heard = coded(speech, codec, codec.bit_rates[-1])
    assert abs(len(heard) - len(speech)) < 0.1 * SAMPLE_RATE_HZ
    top = codec.rate_hz / 2
    assert energy(heard, top * 1.1, 12_000) <= 1e-3 * energy(heard, 0, 12_000)
    assert energy(heard, 200, 3_000) == pytest.approx(energy(speech, 200, 3_000), rel=0.5)

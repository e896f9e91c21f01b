"""Loudness by libav is that of another implementation of the same recommendation."""

import numpy as np
import pyloudnorm
import pytest
import soundfile

from app.settings import BUILTIN_MODEL
from models.voices.loudness import loudness_lufs

RATES_HZ = (24_000, 48_000)  # pyloudnorm's filters are exact at 48 kHz, and less so the lower it is
WITHIN_LU = 0.1


def _sounds(rate_hz: int) -> dict[str, np.ndarray]:
    chance = np.random.default_rng(3)
    seconds = np.arange(3 * rate_hz) / rate_hz
    noise = chance.standard_normal(3 * rate_hz)
    return {
        "a tone": 0.3 * np.sin(2 * np.pi * 997 * seconds),
        "noise": 0.1 * noise,
        "noise and a long pause": np.concatenate([0.1 * noise, np.zeros(6 * rate_hz)]),
        "loud, then what the gate leaves out": np.concatenate([0.2 * noise, 0.002 * noise]),
        "syllables": 0.2 * noise * (np.sin(2 * np.pi * 3 * seconds) > 0),
        "a moment": 0.1 * noise[: round(0.41 * rate_hz)],
        "far over full scale": 30 * noise,
        "nearly nothing": 0.0005 * noise,
    }


@pytest.mark.parametrize("rate_hz", RATES_HZ)
@pytest.mark.parametrize("name", _sounds(8000))
def test_it_is_what_another_meter_measures(name: str, rate_hz: int) -> None:
    sound = _sounds(rate_hz)[name]
    other = pyloudnorm.Meter(rate_hz).integrated_loudness(sound)
    assert loudness_lufs(sound, rate_hz) == pytest.approx(other, abs=WITHIN_LU)


@pytest.mark.parametrize("path", sorted((BUILTIN_MODEL / "voices").glob("*.flac")))
def test_it_is_so_for_speech_and_for_its_beginnings(path) -> None:
    speech, rate_hz = soundfile.read(path)
    # The recommendation leaves out a last block that is not whole, pyloudnorm takes some of them.
    whole_s = len(speech) * 10 // rate_hz / 10
    for seconds in (0.4, 1.2, min(4.0, whole_s)):
        heard = speech[: round(seconds * rate_hz)]
        other = pyloudnorm.Meter(rate_hz).integrated_loudness(heard)
        assert loudness_lufs(heard, rate_hz) == pytest.approx(other, abs=WITHIN_LU)


def test_a_tone_has_the_loudness_that_the_recommendation_states() -> None:
    """BS.1770-4: 997 Hz at full scale in one channel is -3.01 LUFS."""
    for rate_hz in (16_000, *RATES_HZ):
        tone = np.sin(2 * np.pi * 997 * np.arange(5 * rate_hz) / rate_hz)
        assert loudness_lufs(tone, rate_hz) == pytest.approx(-3.01, abs=0.05)


@pytest.mark.parametrize("samples", [0, 1, 500, 100_000])
def test_silence_has_a_loudness_of_minus_infinity(samples: int) -> None:
    assert loudness_lufs(np.zeros(samples, np.float32), 24_000) == -np.inf


@pytest.mark.parametrize("seconds", [0.05, 0.1, 0.3, 0.39])
def test_what_is_too_short_for_a_block_is_measured_all_the_same(seconds: float) -> None:
    noise = np.random.default_rng(1).standard_normal(round(seconds * 24_000)).astype(np.float32)
    assert loudness_lufs(0.1 * noise, 24_000) == pytest.approx(-17, abs=1)

"""What may spoil a voice is named, and the voices that ship have nothing of it."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
import soxr

from models.voices.quality import quality_warnings
from tests.conftest import ROOT

RATE_HZ = 24_000
VOICES = sorted((ROOT / "weights" / "voices").glob("*.flac"))
pytestmark = pytest.mark.weights


def speech(path: Path) -> Any:
    samples, rate_hz = soundfile.read(path, frames=12 * RATE_HZ)
    assert rate_hz == RATE_HZ
    return samples if samples.ndim == 1 else samples.mean(1)


def power(samples: np.ndarray) -> float:
    return float(np.sqrt((samples**2).mean()))


def chords(count: int, seed: int = 0) -> Any:
    """Return a triad every half second, as of a piano."""
    rng, at_s = np.random.default_rng(seed), np.arange(count) / RATE_HZ
    samples = np.zeros(count)
    for begin in range(0, count, RATE_HZ // 2):
        part = slice(begin, begin + RATE_HZ // 2)
        since_s = at_s[part] - at_s[begin]
        for ratio in (1, 1.26, 1.5):
            root_hz = 220 * 2 ** (rng.integers(0, 12) / 12) * ratio
            for harmonic in range(1, 6):
                wave = np.sin(2 * np.pi * root_hz * harmonic * since_s) / harmonic
                samples[part] += np.exp(-2 * since_s) * wave
    return samples / np.abs(samples).max()


@pytest.mark.parametrize("path", VOICES, ids=lambda path: path.stem)
def test_clean_speech_has_no_warning_and_what_is_mixed_with_it_is_named(path) -> None:
    clean = speech(path)
    loud = power(clean)
    assert quality_warnings(clean, RATE_HZ) == []
    noise = np.random.default_rng(1).normal(0, loud * 10**-0.5, len(clean))
    assert "noisy" in quality_warnings(clean + noise, RATE_HZ)[0]
    music = chords(len(clean))
    (warning,) = quality_warnings(clean + music * loud / power(music), RATE_HZ)
    assert "music" in warning or "noisy" in warning
    telephone = soxr.resample(soxr.resample(clean, RATE_HZ, 7_000), 7_000, RATE_HZ)
    assert "narrow band" in quality_warnings(telephone, RATE_HZ)[0]
    assert "narrow band" in quality_warnings(soxr.resample(clean, RATE_HZ, 8_000), 8_000)[0]


def test_music_and_noise_alone_are_named() -> None:
    assert any("music" in one for one in quality_warnings(0.3 * chords(6 * RATE_HZ), RATE_HZ))
    noise = np.random.default_rng(2).normal(0, 0.1, 4 * RATE_HZ)
    assert quality_warnings(noise, RATE_HZ) == ["no speech was found in it"]

"""Recordings of people are joined from files of a package."""

from pathlib import Path

import numpy as np
import pytest
import soundfile

from training.judging.people import RECORDING_S, RECORDINGS, Person, recordings

RATE_HZ = 16_000


def test_files_are_joined_but_silent_and_very_short_ones_until_they_are_long_enough(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("VALLE_TRAINING_CACHE", str(tmp_path))
    folder = tmp_path / "people" / "package" / "sounds"
    folder.mkdir(parents=True)
    person = Person("somebody", "English", "package", "CC0-1.0", "sounds/*.wav")
    kinds = ((2.0, 0.1), (0.2, 0.9), (2.0, 0.001))  # seconds, level
    for number in range(60):
        seconds, level = kinds[number % 3]
        sound = np.full((round(seconds * RATE_HZ), 2), level, np.float32)
        soundfile.write(folder / f"{number:03d}.wav", sound, RATE_HZ)
        if number == 1:
            with pytest.raises(FileNotFoundError, match="package"):
                recordings(person)
    found = recordings(person)
    assert len(found) == RECORDINGS
    for samples, rate_hz in found:
        assert rate_hz == RATE_HZ
        assert samples.ndim == 1
        assert RECORDING_S <= len(samples) / rate_hz < RECORDING_S + 2.5
        assert np.abs(samples).max() < 0.2

"""Recordings of people are joined from files of a package."""

from pathlib import Path

import numpy as np
import pytest
import soundfile

from training.judging.people import PEOPLE, RECORDING_S, RECORDINGS, Person, recordings

RATE_HZ = 16_000


@pytest.fixture
def person(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Person:
    """Somebody whose package is unpacked, with no file in it."""
    monkeypatch.setenv("VALLE_TRAINING_CACHE", str(tmp_path))
    (tmp_path / "people" / "package" / "sounds").mkdir(parents=True)
    return Person("somebody", "English", "package", "CC0-1.0", "sounds/*.wav")


def write(folder: Path, number: int, seconds: float, level: float = 0.1) -> None:
    sound = np.full((round(seconds * RATE_HZ), 2), level, np.float32)
    soundfile.write(folder / "people/package/sounds" / f"{number:03d}.wav", sound, RATE_HZ)


def test_files_are_joined_until_they_are_long_enough(person: Person, tmp_path: Path) -> None:
    for number in range(20):
        write(tmp_path, number, 2.0)
    found = recordings(person)
    assert len(found) == RECORDINGS
    for samples, rate_hz in found:
        assert rate_hz == RATE_HZ
        assert samples.ndim == 1
        assert RECORDING_S <= len(samples) / rate_hz < RECORDING_S + 2.5


def test_silent_and_very_short_files_are_left_out(person: Person, tmp_path: Path) -> None:
    for number in range(0, 30, 3):
        write(tmp_path, number, 2.0)
        write(tmp_path, number + 1, 0.2, level=0.9)
        write(tmp_path, number + 2, 2.0, level=0.001)
    assert max(np.abs(samples).max() for samples, _ in recordings(person)) < 0.2


def test_a_package_without_enough_is_refused(person: Person, tmp_path: Path) -> None:
    write(tmp_path, 0, 2.0)
    with pytest.raises(FileNotFoundError, match="package"):
        recordings(person)


def test_a_licence_is_named_for_everybody_and_nobody_is_there_twice() -> None:
    assert len({person.name for person in PEOPLE}) == len(PEOPLE) >= 6
    assert len({(person.package, person.files) for person in PEOPLE}) == len(PEOPLE)
    assert all(person.licence for person in PEOPLE)

"""Pitch: found, or known from the teacher, and read between two values only where both agree."""

from pathlib import Path

import numpy as np
import pytest

from lab.training.codec.pitch import STEP, UNKNOWN, contour, cycles_at, pitch_at
from lab.training.speech.corpus import SAMPLE_RATE_HZ, Corpus, write_shard


def test_pitch_between_two_values_is_between_them_and_cycles_go_on_with_it() -> None:
    contour_hz = np.array([100, 200, 0, 0, 150, 150, UNKNOWN], np.float32)
    places = np.array([0, 0.25, 0.75, 1, 1.5, 2, 2.5, 3, 3.5, 4, 4.5, 5.5]) * STEP
    expected = [100, 125, 175, UNKNOWN, UNKNOWN, 0, 0, UNKNOWN, UNKNOWN, 150, 150, UNKNOWN]
    np.testing.assert_allclose(pitch_at(contour_hz, places.astype(np.int64)), expected)
    contour_hz = np.array([200, 200, 0, 200, 200], np.float32)
    cycle = np.array([0.0, 0.0, 0.3, 0.5, UNKNOWN], np.float32)
    places = np.array([0, STEP // 4, STEP // 2, 2 * STEP, 3 * STEP + STEP // 4], np.int64)
    expected = [0, 0.25, 0.5, UNKNOWN, 0.75]  # 200 Hz: one cycle a step
    np.testing.assert_allclose(cycles_at(cycle, contour_hz, places), expected, atol=1e-6)


def test_the_pitch_of_a_slow_teacher_is_found_and_kept(tmp_path: Path) -> None:
    pytest.importorskip("pyworld")
    (tmp_path / "kokoro").mkdir()
    seconds = np.arange(SAMPLE_RATE_HZ) / SAMPLE_RATE_HZ
    voice = np.sum([np.sin(2 * np.pi * 140 * k * seconds) / k for k in range(1, 20)], 0)
    samples = np.concatenate([0.1 * voice, np.zeros(SAMPLE_RATE_HZ // 2)]).astype(np.float32)
    write_shard(tmp_path / "kokoro", 0, [(samples, {"text": "x"})])
    corpus = Corpus(tmp_path, "kokoro")
    found = contour(corpus, 0)
    np.testing.assert_allclose(found[20 : voice.size // STEP - 20], 140, rtol=0.01)
    assert (found[voice.size // STEP + 20 :] == UNKNOWN).all()
    np.testing.assert_array_equal(contour(corpus, 0), found)  # from the file now
    assert len(list((tmp_path / "kokoro").glob("*.pitch.npy"))) == 1

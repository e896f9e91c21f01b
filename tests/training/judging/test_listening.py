"""Pictures for the listening page."""

import numpy as np

from training.judging.listening import HOP, WINDOW, spectrogram
from training.speech.corpus import SAMPLE_RATE_HZ


def tone(hz: float, seconds: float = 0.5) -> np.ndarray:
    return np.sin(2 * np.pi * hz * np.arange(int(seconds * SAMPLE_RATE_HZ)) / SAMPLE_RATE_HZ)


def test_a_tone_stands_at_its_frequency() -> None:
    levels = spectrogram(tone(3000).astype(np.float32))
    assert levels.shape == (WINDOW // 2 + 1, (SAMPLE_RATE_HZ // 2 - WINDOW) // HOP + 1)
    assert levels.max() == 0
    assert (levels.argmax(0) == 3000 * WINDOW // SAMPLE_RATE_HZ).all()

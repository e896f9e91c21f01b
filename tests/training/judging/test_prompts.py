import numpy as np
import pytest

from models.voices.loudness import loudness_lufs
from models.voices.recording import LEVEL_LUFS
from training.judging.imitation import WAYS
from training.judging.prompts import RANDOM, recorded_as
from training.speech.corpus import SAMPLE_RATE_HZ


def buzz(seconds: float) -> np.ndarray:
    times = np.arange(round(seconds * SAMPLE_RATE_HZ)) / SAMPLE_RATE_HZ
    return (0.1 * np.sin(2 * np.pi * 120 * times) ** 5).astype(np.float32)


@pytest.mark.parametrize("way", [*WAYS, RANDOM])
def test_a_recording_has_the_length_of_what_was_said_and_the_loudness_of_an_upload(way):
    found = recorded_as(buzz(1.5), way, seed=1)
    assert len(found) == pytest.approx(1.5 * SAMPLE_RATE_HZ, abs=2)
    assert loudness_lufs(found, SAMPLE_RATE_HZ) == pytest.approx(LEVEL_LUFS, abs=0.5)

import numpy as np
import pytest

from training.judging.imitation import WAYS, Judges, Spoken, figures_of, sent

A, B = np.array([1.0, 0.0]), np.array([0.0, 1.0])


@pytest.mark.parametrize("way", WAYS)
def test_a_recording_is_sent_at_a_rate_of_its_way_and_as_long_as_it_was(way):
    samples = np.random.default_rng(0).normal(0, 0.1, 44_100).astype(np.float32)
    found, rate_hz = sent(samples, 44_100, way)
    assert rate_hz == {"full": 44_100, "16k": 16_000, "8k": 8_000, "room": 24_000}[way]
    assert len(found) / rate_hz == pytest.approx(1, abs=1e-3)
    assert sent(np.zeros(800, np.float32), 8_000, "16k")[1] == 8_000  # never at a higher one


class Ears(Judges):
    """Takes the first two samples for the speaker, the third for wrong words, all for quality."""

    def __init__(self):
        pass

    def embed(self, samples):
        return samples[:2]

    def words(self, samples, text):
        return int(samples[2]), 4

    def rate(self, samples):
        return len(samples)


@pytest.mark.parametrize("text", ["x", None])
def test_figures_are_means_over_all_recordings_and_words_count_where_they_are_known(text):
    spoken = [[1, 0, 1], [0, 1, 3]], [[0, 1, 0, 0]]
    said: dict[str, Spoken] = {
        name: [(np.array(one, np.float32), text) for one in own]
        for name, own in zip("ab", spoken, strict=True)
    }
    figures = figures_of(said, {"a": A, "b": B}, Ears())
    expected = {"nearest": 2 / 3, "cosine": 2 / 3, "dnsmos": 10 / 3} | (
        {"wer": 1 / 3} if text else {}
    )
    assert {name: one.value for name, one in figures.items()} == pytest.approx(expected)

import numpy as np
import pytest

from training.judging.imitation import Judges, Spoken, figures_of

A, B = np.array([1.0, 0.0]), np.array([0.0, 1.0])


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

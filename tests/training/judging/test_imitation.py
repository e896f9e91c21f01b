import numpy as np
import pytest
import torch

from app.settings import BUILTIN_MODEL
from models.checkpoints import load_codec
from models.voices.voice import read_mono
from training.judging.imitation import (
    WAYS,
    Judges,
    Spoken,
    TrueLevel0,
    figures_of,
    furthest_apart,
    nearest_to_themselves,
    pairwise,
    sent,
    unseen_speakers,
)
from training.speech.corpus import SAMPLE_RATE_HZ, CorpusEntry

A, B = np.array([1.0, 0.0]), np.array([0.0, 1.0])


@pytest.mark.parametrize(
    ("said", "right", "cosines"),
    [
        ({"a": [A, B], "b": [B, B]}, [1, 2], [1, 2]),
        ({"a": [0 * A], "b": [0 * B]}, [0, 0], [0, 0]),  # silence is like nobody
    ],
)
def test_a_recording_counts_where_its_own_speaker_is_the_nearest(said, right, cosines):
    found = nearest_to_themselves(said, {"a": A, "b": B})
    assert [part.tolist() for part in found] == [right, list(map(len, said.values())), cosines]


def test_those_furthest_apart_are_taken_and_twins_are_alike():
    angles = {"a": 0.0, "twin of a": 1.0, "b": 90.0, "c": 180.0, "twin of c": 181.0}
    references = {
        name: np.array([np.cos(np.radians(angle)), np.sin(np.radians(angle))], np.float32)
        for name, angle in angles.items()
    }
    assert len(set(furthest_apart(references, 2)) & {"c", "twin of c"}) == 1
    three = furthest_apart(references, 3)
    assert {name.removeprefix("twin of ") for name in three} == {"a", "b", "c"}
    assert furthest_apart(references, 9) == sorted(angles)
    assert pairwise({"a": A, "b": B, "twin": A}) == pytest.approx(1 / 3)


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


def test_only_speakers_kept_out_are_unseen_and_their_longest_utterance_comes_first():
    spoken = [
        CorpusEntry("short", 1, 0, 10, "x", "speakers"),
        CorpusEntry("long", 1, 10, 90, "x", "speakers"),
        CorpusEntry("trained", 2, 0, 10, "y", "train"),
    ]
    found = unseen_speakers(spoken)
    assert {name: [one.text for one in own] for name, own in found.items()} == {
        "x": ["long", "short"]
    }


@pytest.mark.weights
@pytest.mark.slow
def test_level_0_stays_that_of_the_speech_and_finer_levels_are_those_of_the_voice() -> None:
    speech = read_mono(BUILTIN_MODEL / "voices" / "heart.flac", SAMPLE_RATE_HZ)[:SAMPLE_RATE_HZ]
    model, codec = TrueLevel0(BUILTIN_MODEL), load_codec(BUILTIN_MODEL)
    heart, george = (model.speak_as(name, speech, "Nobody had.") for name in ("heart", "george"))
    assert len(heart) == len(george) == len(speech)
    assert not np.array_equal(heart, george)
    backwards = speech[::-1].copy()
    true, again, other = (
        codec.encode(torch.from_numpy(sound))[:, 0] for sound in (speech, george, backwards)
    )
    assert (true == again).float().mean() > 2 * (true == other).float().mean()

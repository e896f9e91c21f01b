import numpy as np
import pytest

from training.judging.imitation import furthest_apart, nearest_to_themselves, unseen_speakers
from training.speech.corpus import CorpusEntry

A, B = np.array([1.0, 0.0]), np.array([0.0, 1.0])


def test_a_recording_counts_where_its_own_speaker_is_the_nearest():
    said = {"a": [A, B], "b": [B, B]}
    right, trials, cosine = nearest_to_themselves(said, {"a": A, "b": B})
    assert right.tolist() == [1, 2]
    assert trials.tolist() == [2, 2]
    assert cosine == pytest.approx(3 / 4)


def test_silence_is_like_nobody():
    right, _, cosine = nearest_to_themselves({"a": [0 * A], "b": [0 * B]}, {"a": A, "b": B})
    assert right.tolist() == [0, 0]
    assert cosine == 0


def test_only_speakers_kept_out_are_unseen_and_their_longest_utterance_comes_first():
    spoken = [
        CorpusEntry("short", 1, 0, 10, "x", "speakers"),
        CorpusEntry("long", 1, 10, 90, "x", "speakers"),
        CorpusEntry("trained", 2, 0, 10, "y", "train"),
    ]
    found = unseen_speakers(spoken)
    assert [one.text for one in found["x"]] == ["long", "short"]
    assert list(found) == ["x"]


def test_those_furthest_apart_are_taken_and_twins_last():
    angles = {"a": 0.0, "twin of a": 1.0, "b": 90.0, "c": 180.0, "twin of c": 181.0}
    references = {
        name: np.array([np.cos(np.radians(angle)), np.sin(np.radians(angle))], np.float32)
        for name, angle in angles.items()
    }
    assert len(set(furthest_apart(references, 2)) & {"c", "twin of c"}) == 1
    three = furthest_apart(references, 3)
    assert "b" in three
    assert len({name.removeprefix("twin of ") for name in three}) == 3
    assert furthest_apart(references, 9) == sorted(angles)

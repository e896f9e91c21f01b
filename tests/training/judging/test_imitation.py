import numpy as np
import pytest

from training.judging.imitation import nearest_to_themselves, unseen_speakers
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

from dataclasses import replace

import numpy as np
import pytest

from lab.training.lm.batches import weights_of
from lab.training.lm.codes import CodedUtterance
from lab.training.lm.rows import Prompts

FRAMES = 30


def utterance(number: int, speaker: str, text: str = "x") -> CodedUtterance:
    """Return one that is known by its codes."""
    return CodedUtterance(text, "x", np.full((FRAMES, 8), number, np.int16), speaker)


SAID = [utterance(number, speaker) for number, speaker in enumerate("aaabbc")]
RECORDED = [utterance(101, "a", "one"), utterance(102, "a", "two")]


@pytest.fixture
def random() -> np.random.Generator:
    return np.random.default_rng(0)


@pytest.mark.parametrize(
    ("own", "recorded", "heard"),
    [
        (SAID[1], 0.0, {0, 2}),  # never the utterance itself
        (SAID[1], 1.0, {101, 102}),
        (SAID[1], 0.5, {0, 2, 101, 102}),
        (replace(SAID[0], text="one"), 1.0, {102}),  # nor a recording of it
        (SAID[3], 1.0, {4}),  # who has no recording is prompted with clean speech
    ],
)
def test_a_prompt_is_of_the_same_speaker_recorded_as_often_as_asked_for(
    own, recorded, heard, random
):
    prompts = Prompts(SAID, RECORDED)
    found = [prompts.draw(own, 10, random, recorded) for _ in range(200)]
    assert {len(one) for one in found if one is not None} == {10}
    assert {int(one[0, 0]) for one in found if one is not None} == heard
    assert prompts.draw(SAID[5], 10, random) is None  # who spoke once


def test_a_prompt_of_pieces_is_as_long_and_has_one_of_each_of_some_others(random):
    found = Prompts(SAID).draw(SAID[0], 10, random, pieces=2)
    assert found is not None
    assert len(found) == 10
    assert sorted(set(found[:, 0].tolist())) == [1, 2]


def test_every_person_is_drawn_as_often_and_those_of_a_worse_source_less():
    pool = [
        *[utterance(0, "person-vctk/1")] * 8,
        utterance(0, "person-vctk/2"),
        *[utterance(0, "person-speechocean762/0001")] * 4,
        *[utterance(0, "kokoro")] * 3,
    ]
    found = weights_of(pool)
    assert found[:8].sum() == pytest.approx(1)
    assert found[8] == 1
    assert found[9:13].sum() == pytest.approx(0.5)
    np.testing.assert_array_equal(found[13:], 1)

import numpy as np
import pytest
from numpy.typing import NDArray

from training.lm.codes import CodedUtterance
from training.lm.rows import Prompts

FRAMES = 30


@pytest.fixture
def utterances() -> list[CodedUtterance]:
    """Three of one speaker, two of another, one of a third; every code tells its utterance."""
    speakers = ["a", "a", "a", "b", "b", "alone"]
    return [
        CodedUtterance("x", "x", np.full((FRAMES, 8), number, np.int16), speaker)
        for number, speaker in enumerate(speakers)
    ]


@pytest.fixture
def prompts(utterances) -> Prompts:
    return Prompts(utterances)


@pytest.fixture
def random() -> np.random.Generator:
    return np.random.default_rng(0)


def first_code(prompt: NDArray[np.int16] | None) -> int:
    assert prompt is not None
    return int(prompt[0, 0])


def test_a_prompt_is_of_the_same_speaker_and_never_of_the_utterance_itself(
    utterances, prompts, random
):
    heard = {first_code(prompts.draw(utterances[1], 10, random)) for _ in range(100)}
    assert heard == {0, 2}


def test_a_prompt_is_as_long_as_asked_for_or_as_its_utterance(utterances, prompts, random):
    assert prompts.draw(utterances[3], 10, random).shape == (10, 8)
    assert prompts.draw(utterances[3], 100, random).shape == (FRAMES, 8)


def test_prompts_start_anywhere_in_an_utterance(random):
    counting = np.repeat(np.arange(FRAMES, dtype=np.int16)[:, None], 8, 1)
    pair = [CodedUtterance("x", "x", counting, "a") for _ in range(2)]
    prompts = Prompts(pair)
    starts = {first_code(prompts.draw(pair[0], 10, random)) for _ in range(500)}
    assert starts == set(range(FRAMES - 10 + 1))


def test_who_spoke_once_has_no_prompt(utterances, prompts, random):
    assert prompts.draw(utterances[5], 10, random) is None

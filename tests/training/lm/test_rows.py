from dataclasses import replace

import numpy as np
import pytest
import torch

from models.config import ModelConfig
from models.text import ENGLISH_SYMBOLS
from models.valle import Valle
from training.lm.codes import CodedUtterance
from training.lm.rows import Prompts, Row, losses_of
from training.lm.translate import initialise

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


CODES, LEVELS = 16, 3


@pytest.fixture
def model() -> Valle:
    torch.manual_seed(0)
    model = Valle(
        ModelConfig(
            name="small", width=16, layers=2, heads=2, kv_heads=1, ffn=24, codes=CODES,
            phonemes=ENGLISH_SYMBOLS, levels=LEVELS, shared_tables=True, has_null_condition=True,
            max_prompt_frames=10,
        )
    )  # fmt: skip
    initialise(model)
    return model


@pytest.fixture
def spoken(random) -> list[CodedUtterance]:
    return [
        CodedUtterance("x", "ab", random.integers(0, CODES, (200, LEVELS)).astype(np.int16), "a")
        for _ in range(3)
    ]


def test_what_is_predicted_after_draws_are_the_true_codes(model, spoken, random):
    short = [replace(one, codes=one.codes[:12]) for one in spoken]
    drawn, level = Row(short[0], 0, drawn=1.0), Row(short[1], 1)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(200):
        loss, by_level = losses_of(model, [drawn, level], random)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert by_level[0][1] > 0.5  # by heart, whatever was drawn before; 1 in 16 by chance
    assert set(by_level) == {0, 1}

from dataclasses import replace

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from models.config import ModelConfig
from models.text import ENGLISH_SYMBOLS
from models.valle import Valle
from training.lm.codes import CodedUtterance
from training.lm.rows import Prompts, Row, _with_draws, losses_of
from training.lm.translate import initialise

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


@pytest.fixture
def recorded() -> list[CodedUtterance]:
    """What speaker ``a`` said first and second, as people record it."""
    return [
        CodedUtterance(text, "x", np.full((FRAMES, 8), number, np.int16), "a")
        for text, number in (("one", 101), ("two", 102))
    ]


def test_prompts_are_recordings_as_often_as_asked_for(utterances, recorded, random):
    prompts = Prompts(utterances, recorded)
    asked = [first_code(prompts.draw(utterances[0], 10, random, 0.25)) for _ in range(400)]
    assert 0.15 < np.mean([code > 100 for code in asked]) < 0.35
    assert {first_code(prompts.draw(utterances[0], 10, random)) for _ in range(100)} == {1, 2}


def test_a_recording_of_the_utterance_itself_is_no_prompt(utterances, recorded, random):
    prompts = Prompts(utterances, recorded)
    own = replace(utterances[0], text="one")
    heard = {first_code(prompts.draw(own, 10, random, 1.0)) for _ in range(50)}
    assert heard == {102}


def test_who_has_no_recording_is_prompted_with_clean_speech(utterances, recorded, random):
    prompts = Prompts(utterances, recorded)
    assert first_code(prompts.draw(utterances[3], 10, random, 1.0)) == 4


def test_who_spoke_once_has_no_prompt(utterances, prompts, random):
    assert prompts.draw(utterances[5], 10, random) is None


CODES, LEVELS = 16, 3


@pytest.fixture
def model() -> Valle:
    torch.manual_seed(0)
    model = Valle(
        ModelConfig(
            name="small", width=16, layers=2, heads=2, kv_heads=1, ffn=24, codes=CODES,
            phonemes=ENGLISH_SYMBOLS, levels=LEVELS, shared_tables=True, has_null_condition=True,
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


def _codes(rows: list[Row]) -> list[torch.Tensor]:
    return [torch.from_numpy(row.utterance.codes.astype(np.int64)) for row in rows]


def test_so_many_codes_of_level_0_are_drawn_as_asked_for_and_no_others(model, spoken, random):
    rows = [Row(spoken[0], 0, drawn=0.5), Row(spoken[1], 0), Row(spoken[2], 0, drawn=1.0)]
    before = _codes(rows)
    after = _with_draws(model, rows, before, random)
    assert 0.35 < (after[0][:, 0] != before[0][:, 0]).float().mean() < 0.6
    assert torch.equal(after[1], before[1])
    assert (after[2][:, 0] != before[2][:, 0]).float().mean() > 0.8
    for one, other in zip(after, before, strict=True):
        assert torch.equal(one[:, 1:], other[:, 1:])
        assert one.max() < CODES


def test_a_draw_follows_the_models_own_distribution(model, spoken, random):
    with torch.no_grad():
        model.heads[0].weight.zero_()
    row = Row(spoken[0], 0, drawn=1.0)
    (drawn,) = _with_draws(model, [row], _codes([row]), random)
    counts = torch.bincount(drawn[:, 0], minlength=CODES)
    assert counts.min() > 0  # no weight tells one code from another


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

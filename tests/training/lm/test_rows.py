from dataclasses import replace

import numpy as np
import pytest
import torch

from models.config import ModelConfig
from models.text import ENGLISH_SYMBOLS
from models.valle import Valle
from training.lm.codes import CodedUtterance
from training.lm.rows import Prompts, Row, _with_draws, losses_of
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


def test_prompts_start_anywhere_in_an_utterance_and_are_no_longer(random):
    counting = np.repeat(np.arange(FRAMES, dtype=np.int16)[:, None], 8, 1)
    pair = [CodedUtterance("x", "x", counting, "a") for _ in range(2)]
    found = [Prompts(pair).draw(pair[0], 10, random) for _ in range(500)]
    assert {int(one[0, 0]) for one in found if one is not None} == set(range(FRAMES - 10 + 1))
    whole = Prompts(pair).draw(pair[0], 100, random)
    assert whole is not None
    assert whole.shape == (FRAMES, 8)


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


def _codes(rows: list[Row]) -> list[torch.Tensor]:
    return [torch.from_numpy(row.utterance.codes.astype(np.int64)) for row in rows]


def test_so_many_codes_of_level_0_are_drawn_as_asked_for_and_no_others(model, spoken, random):
    prompt = spoken[0].codes[:10]
    rows = [Row(spoken[0], 0, prompt, drawn=0.5), Row(spoken[1], 0), Row(spoken[2], 0, drawn=1.0)]
    before = _codes(rows)
    after = _with_draws(model, rows, before, random)
    assert 0.35 < (after[0][:, 0] != before[0][:, 0]).float().mean() < 0.6
    assert torch.equal(after[1], before[1])
    assert (after[2][:, 0] != before[2][:, 0]).float().mean() > 0.8
    for one, other in zip(after, before, strict=True):
        assert torch.equal(one[:, 1:], other[:, 1:])
        assert one.max() < CODES
    with torch.no_grad():
        model.heads[0].weight.zero_()  # no weight tells one code from another
    counts = torch.bincount(_with_draws(model, rows, before, random)[2][:, 0], minlength=CODES)
    assert counts.min() > 0


def test_draws_go_by_the_prompt_of_another_row(model, spoken, random, monkeypatch):
    rows = [Row(one, 0, one.codes[:10], drawn=1.0) for one in spoken]
    prompts: list[list[int]] = []
    prefix = model.prefix

    def noted(ids, level, *, prompt):
        prompts.append(prompt[:, 0].tolist())
        return prefix(ids, level, prompt=prompt)

    monkeypatch.setattr(model, "prefix", noted)
    _with_draws(model, rows, _codes(rows), random)
    others = [row.prompt[:, 0].tolist() for row in (*rows[1:], rows[0]) if row.prompt is not None]
    assert prompts[:3] == others


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

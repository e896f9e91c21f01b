"""Passes over the whole of several sequences, in fixed shapes, are those of each by itself."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from models.config import ModelConfig
from models.valle import Valle
from models.whole_passes import CODES, WholePasses, number_prefix, padded
from tests.toy.make_toy import MODEL

COLUMNS, LEVELS = 96, 8
CHANGES: list[dict[str, Any]] = [
    {},
    {"unified_positions": True},
    {"shared_tables": True, "prompt_sums": "exclusive", "response_sums": "none"},
    {"segments": ("phn", "lang", "level", "prom", "resp"), "response_sums": "exclusive"},
    {"segments": ("phn", "prom", "resp"), "kv_heads": 4},
    {"max_prompt_frames": 0, "segments": ("lang", "level", "phn", "resp")},
    {"languages": ("en", "de", "ja"), "language_rows": 2},
]


def model_of(config: ModelConfig) -> Valle:
    torch.manual_seed(0)
    return Valle(config).eval().requires_grad_(False)


def codes_of(number: int, frames: int) -> Tensor:
    return torch.randint(512, (frames, LEVELS), generator=torch.Generator().manual_seed(number))


@pytest.mark.parametrize("changes", CHANGES, ids=str)
@torch.inference_mode()
def test_logits_of_frames_are_those_of_a_pass_over_each(changes: dict[str, Any]) -> None:
    model = model_of(MODEL.model_copy(update={"nar_mask": "full"} | changes))
    passes = WholePasses(model)
    prompts = [None, codes_of(0, 17), None]
    if model.config.max_prompt_frames:
        prompts[0] = codes_of(1, 30)
    texts = [[1, 11, 12, 2], [1, *range(10, 25), 2], [1, 2]]
    own = [codes_of(2, 20), codes_of(3, 41), codes_of(4, 1)]
    firsts = [0, 7, 30]
    if not model.config.max_prompt_frames:
        prompts = [None] * 3
    table = np.zeros((3, 2, COLUMNS), np.int64)
    given, lengths = torch.zeros(3, COLUMNS, LEVELS, dtype=torch.int64), []
    for row, (text, prompt, codes, first) in enumerate(
        zip(texts, prompts, own, firsts, strict=True)
    ):
        count = 0 if prompt is None else len(prompt)
        prefix = number_prefix(model, text, language=row, prompt_frames=count)
        table[row] = padded(prefix, len(codes), first, COLUMNS)
        given[row, : len(codes)] = codes
        if prompt is not None:
            places = len(codes) + np.flatnonzero(prefix.prompted)
            given[row, places] = prompt
        lengths.append(len(codes) + len(prefix.marks))
    marks, positions = torch.from_numpy(table).unbind(1)
    frames = torch.arange(COLUMNS) < torch.tensor([[len(codes)] for codes in own])
    layout = passes.layout(positions, torch.tensor(lengths))
    for level in range(1, LEVELS):
        found = passes.logits(passes.embed(marks, given, frames, level), layout, level)
        for row, codes in enumerate(own):
            own_prefix = model.prefix(texts[row], level, language=row, prompt=prompts[row])
            expected = model.nar_logits(own_prefix, codes, level, start=firsts[row])
            torch.testing.assert_close(found[row, : len(codes)], expected, rtol=1e-4, atol=1e-5)


@torch.inference_mode()
def test_the_numbers_of_a_prefix_stand_for_what_is_embedded() -> None:
    model = model_of(MODEL.model_copy(update={"nar_mask": "full"}))
    prompt = codes_of(0, 9)
    numbered = number_prefix(model, [1, 30, 2], prompt_frames=len(prompt))
    prefix = model.prefix([1, 30, 2], 3, prompt=prompt)
    assert numbered.positions.tolist() == prefix.positions.tolist()
    assert numbered.prompted.sum() == len(prompt)
    marks = torch.from_numpy(numbered.marks)[None]
    codes = torch.zeros(1, len(prefix), LEVELS, dtype=torch.int64)
    codes[0, marks[0] == CODES] = prompt
    found = WholePasses(model).embed(marks, codes, torch.zeros_like(marks, dtype=torch.bool), 3)
    assert torch.equal(found, prefix.embeddings)


def test_other_masks_are_refused() -> None:
    with pytest.raises(ValueError, match="full mask"):
        WholePasses(model_of(MODEL))

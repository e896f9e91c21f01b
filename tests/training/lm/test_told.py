"""Was that said? Asked of the built-in model and of speech that a teacher said."""

from dataclasses import replace

import numpy as np
import pytest

from app.settings import BUILTIN_MODEL
from models.checkpoints.builtin import load_lm
from models.text import phonemize
from models.valle import Valle
from training.cache import NEXT_MODEL
from training.lm.codes import CodedUtterance, read_shard
from training.lm.told import FRAMES, LEAST_GAIN, least_gain, was_said

SAID = [
    one
    for one in read_shard(NEXT_MODEL / "codes" / "kokoro" / "0000.npz")
    if len(one.text.split()) > 5
][:12:3]


@pytest.fixture(scope="module")
def model() -> Valle:
    return load_lm(BUILTIN_MODEL)


def said_of(text: str, one: CodedUtterance) -> list[int]:
    return replace(one, phonemes=phonemize(text)).phoneme_ids


@pytest.mark.parametrize("one", SAID, ids=lambda one: one.text)
def test_a_text_is_told_from_one_with_other_words(model, one):
    words = one.text.split()
    other = " ".join([*words[:2], "purple", "elephants", *words[4:]])
    assert was_said(model, one.phoneme_ids, one.codes)
    assert not was_said(model, said_of(other, one), one.codes)
    right, wrong = (
        least_gain(model, ids, one.codes) for ids in (one.phoneme_ids, said_of(other, one))
    )
    assert wrong < LEAST_GAIN <= right


def test_what_is_shorter_than_the_window_is_judged_as_a_whole(model):
    codes = SAID[0].codes[: FRAMES // 2]
    assert np.isfinite(least_gain(model, SAID[0].phoneme_ids, codes))

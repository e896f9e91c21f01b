"""What is heard of a speech, and warned of."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from app.api.history.heard import LONGEST_AFTER_S, sounds_after
from app.engine.results import UtteranceResult
from tests.app.tools.answers import report_of

SPOKEN = UtteranceResult(
    text="Say it again.",
    phonemes="seI.",
    start_s=0.0,
    duration_s=1.0,
    codes=np.zeros((3, 8), np.int16),
    finish_reason="stop",
)


@pytest.mark.parametrize(
    ("after_s", "warned"),
    [(None, False), (0.15, False), (LONGEST_AFTER_S, False), (0.41, True), (2.0, True)],
)
def test_sound_long_after_the_last_word_is_warned_of(after_s: float | None, warned: bool) -> None:
    told = sounds_after([SPOKEN, replace(SPOKEN, sound_after_s=after_s)])
    assert len(told) == warned
    assert all(f"{after_s:.1f} s after the end of 'Say it again.'" in one for one in told)


@pytest.mark.slow
@pytest.mark.weights
def test_a_sentence_that_was_said_twice_ends_with_its_last_word(builtin) -> None:
    text = (
        "Typing a rather long text here, slowly, as people do when they think about what to say"
        " next."
    )
    for seed in (3, 6):
        asked: dict[str, Any] = {"input": text, "voice": "heart", "seed": seed}
        answer = builtin.post("/tts", json=asked)
        assert "x-warning" not in answer.headers
        utterances = report_of(builtin, answer)["utterances"]
        assert all(0 < one["sound_after_s"] <= LONGEST_AFTER_S for one in utterances)

"""Finding the head that follows the text."""

# ruff: noqa: RUF001 - IPA is full of letters that look like Latin ones

import numpy as np
import pytest

from app.engine.backend.synthesizer import Synthesizer
from app.engine.core import SpeechJob
from app.engine.results import UtteranceResult
from app.settings import BUILTIN_MODEL
from lab.porting.alignment_heads import MOST_LEAD_FRAMES, _rises_db, _vowels, rate_heads
from models.checkpoints.builtin import load_lm
from samplers.knobs.params import SamplingParams
from tests.app.tools.serving import settings_of


@pytest.mark.slow
@pytest.mark.weights
def test_the_built_in_voice_s_head_is_found() -> None:
    synthesizer = Synthesizer.load(settings_of(BUILTIN_MODEL, max_text_chars=200))
    spoken: list[UtteranceResult] = []
    for text in ("The birch canoe slid on the smooth planks.", "Glue the sheet to the wall."):
        plan = synthesizer.planner.plan(SpeechJob("a", text, SamplingParams(seed=1)))
        *_, last = synthesizer.speak(plan)
        assert last.result is not None
        spoken += last.result.utterances
    best, second, *_ = rate_heads(synthesizer.speech, plan.speakers[0][1], spoken)
    shipped = load_lm(BUILTIN_MODEL).config.alignment
    assert shipped is not None
    assert (best.layer, best.head) == (shipped.layer, shipped.head)
    assert best.sureness > 0.6
    assert best.sureness > second.sureness
    # Whisper's words, to which the shipped lead was fitted, begin some frames before their vowels
    # (docs/results/studio.md).
    assert 0 <= shipped.lead_frames <= best.lead_frames <= 8
    assert best.lead_frames - shipped.lead_frames <= 3


def test_a_vowel_counts_from_its_stress_mark_and_only_after_a_consonant() -> None:
    phonemes = "həlˈoʊ ɑːɪ tˈiː, ɪt"
    found = _vowels(phonemes, [0, *([1] * len(phonemes)), 0])
    assert [phonemes[number - 1] for number in found] == list("əˈˈ")
    # The same ids whatever stands for the phonemes: here one id for the first word.
    assert _vowels("həlˈoʊ tˈi", [0, 6, 1, 2, 1, 0]) == [1, 1, 3]


@pytest.mark.parametrize("lead", [0, 3, 20])
def test_the_lead_is_where_the_sound_rises(lead: int) -> None:
    entered = np.array([1, 10, 40, 70, 99])  # the first and the last are too near the ends
    loudness_db = np.full(100, -60.0)
    for frame in entered[1:-1]:
        loudness_db[frame + lead : frame + lead + 6] = -20.0
    rises = _rises_db(loudness_db, entered)
    assert rises.shape == (3, MOST_LEAD_FRAMES + 1)
    assert set(rises.argmax(1)) == {lead}
    np.testing.assert_allclose(rises[:, lead], 40)

"""The voice that ships: one sentence, from text to samples."""

from pathlib import Path

import numpy as np
import pytest

from app.engine.backend.synthesizer import Synthesizer
from app.engine.core import SpeechJob
from models.voices.loudness import loudness_lufs
from samplers.knobs.params import SamplingParams
from tests.app.tools.serving import settings_of

WEIGHTS = Path(__file__).parents[2] / "weights"


@pytest.mark.slow
@pytest.mark.weights
def test_the_builtin_voice_speaks_a_sentence_and_stops_by_itself() -> None:
    synthesizer = Synthesizer.load(settings_of(WEIGHTS, max_text_chars=200))
    job = SpeechJob("id", "Rice is often served in round bowls.", SamplingParams(seed=1))
    chunks = list(synthesizer.speak(synthesizer.planner.plan(job)))
    result, samples = chunks[-1].result, np.concatenate([chunk.samples for chunk in chunks])
    assert result is not None
    assert result.finish_reason == "stop"
    assert 1.2 < result.audio_s < 5.0  # the teacher takes 2.4 s, without silence at the ends
    assert 0.01 < float(np.sqrt((samples**2).mean())) < 0.2
    assert float(np.abs(samples).max()) < 1.0


@pytest.mark.slow
@pytest.mark.weights
def test_the_builtin_voices_are_as_loud_as_their_cards_say() -> None:
    synthesizer = Synthesizer.load(settings_of(WEIGHTS, weights="int8", max_text_chars=200))
    for voice in synthesizer.planner.voices.builtin:
        assert voice.speech_lufs is not None, "run python -m scripts.measure_voices"
        job = SpeechJob("id", "She called many times.", SamplingParams(seed=1), voice.name)
        chunks = synthesizer.speak(synthesizer.planner.plan(job))
        spoken = np.concatenate([chunk.samples for chunk in chunks])
        heard = loudness_lufs(spoken, synthesizer.info.sample_rate_hz)
        assert heard == pytest.approx(voice.speech_lufs, abs=2.0), voice.name

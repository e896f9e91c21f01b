"""Takes spoken together are those that each text has by itself; their paths are told."""

import numpy as np
import pytest

from app.engine.backend.synthesizer import Synthesizer
from app.engine.core import SpeechJob
from app.settings import Settings
from lab.training.judging.takes import goes_back, spoken_together
from samplers.knobs.params import SamplingParams

TEXTS = ("One. Two.", "Hello there, my dear.", "It is late.")


@pytest.mark.parametrize(
    ("behind", "returns"),
    [
        ([], False),
        ([0.9] * 4, False),
        ([0.0, 0.9, 0.9, 0.9, 0.9, 0.9], True),
        ([0.9, 0.9, 0.0, 0.9, 0.9, 0.9], False),  # not in a row
        ([0.6] * 9, False),
        ([0.2, 0.6, 0.8, 0.8, 0.8, 0.7, 0.0], True),
    ],
)
def test_speech_goes_back_where_five_frames_in_a_row_clearly_attend_to_earlier_symbols(
    behind: list[float], returns: bool
) -> None:
    assert goes_back(behind) is returns


def test_takes_that_are_spoken_together_have_the_codes_and_sound_that_each_has_alone(toy) -> None:
    speaker = Synthesizer.load(Settings(model=str(toy), threads=1))
    params = SamplingParams(seed=3)
    plans = [
        speaker.planner.plan(SpeechJob(f"{number}", text, params, max_duration_s=0.2))
        for number, text in enumerate(12 * TEXTS)  # more than there are rows
    ]
    takes = dict(spoken_together(speaker, plans))
    assert sorted(takes) == [*range(len(plans))]
    for number in range(len(TEXTS)):
        *_, alone = chunks = list(speaker.speak(plans[number]))
        assert alone.result is not None
        samples = np.concatenate([chunk.samples for chunk in chunks])
        for take in (takes[number], takes[number + len(TEXTS)]):
            assert take.result.codes_sha256 == alone.result.codes_sha256
            assert np.array_equal(take.samples, samples)


def test_no_texts_have_no_takes(toy) -> None:
    speaker = Synthesizer.load(Settings(model=str(toy), threads=1))
    assert list(spoken_together(speaker, [])) == []

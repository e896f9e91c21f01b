"""How long a speech will last is told before any of it is made; too long is refused."""

from dataclasses import replace

import numpy as np
import pytest

from app.engine.backend.planner import limited
from app.engine.errors import InvalidRequest
from app.engine.job import USUAL_PHONEME_S, SpeechJob, SpeechResult, SpokenUtterance
from models.text import Utterance, prepare
from samplers.knobs.params import SamplingParams
from tests.fakes import result_of

JOB = SpeechJob("id", "", SamplingParams())
RATE_HZ = 75.0
SECOND = "a" * round(1 / USUAL_PHONEME_S)


def before(audio_s: float, frames: int, rate: float = 1.0) -> SpeechResult:
    spoken = SpokenUtterance(np.zeros((frames, 1), np.int16), "stop", rate=rate)
    return result_of(spoken, audio_s=audio_s)


def limit(job: SpeechJob, utterances: list[Utterance], max_audio_s: float) -> float | None:
    return limited(job, utterances, 0.25, RATE_HZ, max_audio_s).max_duration_s


def test_pauses_and_a_slow_speed_count():
    text = prepare("a [pause:10s]" * 75)
    with pytest.raises(InvalidRequest, match=r"about 30\d\d s .* at most 1800 s") as refused:
        limit(replace(JOB, speed=0.25), text, 1800.0)
    assert refused.value.param == "input"
    assert limit(JOB, text, 1800.0) == pytest.approx(1800 - 750)


def test_what_fits_cannot_grow_beyond_the_limit():
    two = [Utterance("x", SECOND), Utterance("x", SECOND)]
    assert limit(JOB, two, 10.0) == pytest.approx(9.75)  # a pause between, none at the end
    assert limit(replace(JOB, more=True), two, 10.0) == pytest.approx(9.5)
    assert limit(replace(JOB, max_duration_s=3.0), two, 10.0) == 3.0
    assert limit(replace(JOB, speed=0.5), two, 10.0) == pytest.approx(4.75)
    assert limit(replace(JOB, speed=4.0), two, 10.0) == pytest.approx(9.75)


def test_words_that_last_too_long_are_refused_unless_cut():
    long = [Utterance("x", SECOND * 20)]
    with pytest.raises(InvalidRequest):
        limit(JOB, long, 10.0)
    assert limit(replace(JOB, max_duration_s=5.0), long, 10.0) == 5.0


def test_what_was_spoken_before_counts():
    later = replace(JOB, before=before(audio_s=8.0, frames=round(6 * RATE_HZ)))
    assert limit(later, [Utterance("x", SECOND)], 10.0) == pytest.approx(6 + 2)
    with pytest.raises(InvalidRequest):
        limit(later, [Utterance("x", SECOND * 3)], 10.0)


def test_rates_count_as_they_are_heard():
    slow, fast = Utterance("x", SECOND * 3, rate=0.25), Utterance("x", SECOND * 30, rate=4.0)
    assert limit(JOB, [fast], 10.0) == pytest.approx(10)  # 30 s of speech in 7.5
    with pytest.raises(InvalidRequest, match="about 12 s"):
        limit(JOB, [slow], 10.0)
    later = replace(JOB, before=before(audio_s=8.0, frames=round(6 * RATE_HZ), rate=0.75))
    assert limit(later, [Utterance("x", SECOND)], 10.0) == pytest.approx(8 + 2)


def test_without_a_limit_a_job_stays_as_it_is():
    assert limited(JOB, [Utterance("x", SECOND)], 0.25, RATE_HZ, np.inf) is JOB

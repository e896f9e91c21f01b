"""A job that goes on with what earlier jobs spoke: what they leave to it, and what is told of all.

That together they are one speech, and are heard again as one, is said by `test_ways` of the API.
"""

from typing import Any

import numpy as np
import pytest

from app.engine.backend.options import ModelOptions
from app.engine.backend.synthesizer import Synthesizer
from app.engine.continued import JobChain
from app.engine.job import SpeechJob, SpeechResult
from samplers.knobs.params import SamplingParams

RATE_HZ = 24_000


@pytest.fixture(scope="module")
def synthesizer(toy) -> Synthesizer:
    return Synthesizer.load(ModelOptions(toy, "cpu", threads=1, max_text_chars=200))


def spoken(
    synthesizer: Synthesizer,
    text: str,
    before: SpeechResult | None = None,
    more: bool = False,
    **knobs,
) -> tuple[np.ndarray, SpeechResult]:
    params = SamplingParams(seed=1, **knobs)
    job = SpeechJob("id", text, params, max_duration_s=0.6, before=before, more=more)
    plan = synthesizer.plan(job)
    chunks = list(synthesizer.speak(plan, queue_s=0.0, on_progress=lambda _: True))
    result = chunks[-1].result
    assert result is not None
    return np.concatenate([chunk.samples for chunk in chunks]), result


def joined(*results: SpeechResult) -> SpeechResult:
    chain = JobChain(SpeechJob("id", "", SamplingParams()))
    for result in results:
        chain.add(result)
    assert chain.result is not None
    return chain.result


def test_a_pause_at_the_end_is_owed_where_more_may_follow(synthesizer) -> None:
    text = "One. [pause:0.5s]"
    ended, whole = spoken(synthesizer, text)
    open_ended, part = spoken(synthesizer, text, more=True)
    assert (whole.pause_owed_s, part.pause_owed_s) == (0.0, 0.5)
    np.testing.assert_array_equal(ended[: len(open_ended)], open_ended)
    assert len(ended) - len(open_ended) == 0.5 * RATE_HZ


def test_once_the_limit_is_reached_later_pieces_are_silent(synthesizer) -> None:
    _, before = spoken(synthesizer, "One.", min_frames=1000)
    samples, result = spoken(synthesizer, "Two.", before, min_frames=1000)
    assert (len(samples), result.frames, result.finish_reason) == (0, 0, "length")
    both = joined(before, result)
    assert (both.frames, both.codes_sha256) == (before.frames, before.codes_sha256)
    _, paused = spoken(synthesizer, "One [pause:1s]", more=True, min_frames=1000)
    assert paused.utterances[-1].pause_after_s == 1.0
    assert joined(paused, result).utterances[-1].pause_after_s is None


def test_the_gravest_reason_of_all_is_told(synthesizer) -> None:
    ending: dict[str, Any] = {"logit_bias": {"512": 99.0}, "min_frames": 3}
    _, cut = spoken(synthesizer, "One.", min_frames=1000)
    _, ended = spoken(synthesizer, "One.", **ending)
    assert (cut.finish_reason, ended.finish_reason) == ("length", "stop")
    assert joined(cut, ended).finish_reason == joined(ended, cut).finish_reason == "length"
    assert joined(ended, ended).timings.ar_s == 2 * ended.timings.ar_s

"""What is settled before any sound is made: how long it may last, and which way each level goes."""

from dataclasses import replace

import numpy as np
import pytest

from app.engine.backend.limits import check_limits, limits_of
from app.engine.backend.plan_checks import check_kept, choose_ar, limited, nar_plan
from app.engine.core import (
    USUAL_PHONEME_S,
    OutputOptions,
    Resume,
    SpeechJob,
    SpeechPart,
    SpeechResult,
)
from app.engine.errors import InvalidRequest
from app.engine.results import UtteranceResult
from models.config import AlignmentHead, ModelConfig
from models.text import Utterance
from samplers.knobs.features import idle_knobs
from samplers.knobs.params import SamplingParams
from samplers.knobs.resolve import resolve
from tests.app.engine.ar.test_masked import CONFIG
from tests.fakes import result_of
from tests.models.text.reading import prepare

JOB = SpeechJob("id", "", SamplingParams())
RATE_HZ = 75.0
SECOND = "a" * round(1 / USUAL_PHONEME_S)


def before(audio_s: float, frames: int, rate: float = 1.0) -> SpeechResult:
    spoken = UtteranceResult(np.zeros((frames, 1), np.int16), "stop", rate=rate)
    return result_of(spoken, audio_s=audio_s)


def limit(job: SpeechJob, utterances: list[Utterance], max_audio_s: float) -> float | None:
    return limited(job, utterances, 0.25, RATE_HZ, max_audio_s).max_duration_s


def test_pauses_and_a_slow_speed_count():
    text = prepare("a [pause:10s]" * 75)
    with pytest.raises(InvalidRequest, match=r"about 30\d\d s .* at most 1800 s") as refused:
        limit(replace(JOB, output=OutputOptions(0.25)), text, 1800.0)
    assert refused.value.param == "input"
    assert limit(JOB, text, 1800.0) == pytest.approx(1800 - 750)


def test_what_fits_cannot_grow_beyond_the_limit():
    two = [Utterance("x", SECOND), Utterance("x", SECOND)]
    assert limit(JOB, two, 10.0) == pytest.approx(9.75)  # a pause between, none at the end
    assert limit(replace(JOB, part=SpeechPart(more=True)), two, 10.0) == pytest.approx(9.5)
    assert limit(replace(JOB, max_duration_s=3.0), two, 10.0) == 3.0
    assert limit(replace(JOB, output=OutputOptions(0.5)), two, 10.0) == pytest.approx(4.75)
    assert limit(replace(JOB, output=OutputOptions(4.0)), two, 10.0) == pytest.approx(9.75)


def test_words_that_last_too_long_are_refused_unless_cut():
    long = [Utterance("x", SECOND * 20)]
    with pytest.raises(InvalidRequest):
        limit(JOB, long, 10.0)
    assert limit(replace(JOB, max_duration_s=5.0), long, 10.0) == 5.0


def test_what_was_spoken_before_counts():
    later = replace(JOB, part=SpeechPart(before(audio_s=8.0, frames=round(6 * RATE_HZ))))
    assert limit(later, [Utterance("x", SECOND)], 10.0) == pytest.approx(6 + 2)
    with pytest.raises(InvalidRequest):
        limit(later, [Utterance("x", SECOND * 3)], 10.0)


def test_rates_count_as_they_are_heard():
    slow, fast = Utterance("x", SECOND * 3, rate=0.25), Utterance("x", SECOND * 30, rate=4.0)
    assert limit(JOB, [fast], 10.0) == pytest.approx(10)  # 30 s of speech in 7.5
    with pytest.raises(InvalidRequest, match="about 12 s"):
        limit(JOB, [slow], 10.0)
    slower = before(audio_s=8.0, frames=round(6 * RATE_HZ), rate=0.75)
    later = replace(JOB, part=SpeechPart(slower))
    assert limit(later, [Utterance("x", SECOND)], 10.0) == pytest.approx(8 + 2)


def test_without_a_limit_a_job_stays_as_it_is():
    assert limited(JOB, [Utterance("x", SECOND)], 0.25, RATE_HZ, np.inf) is JOB


IDLE = {"top_k", "nar_len_steps", "nar_left_context_frames", "nar_lookahead_frames"}
AR_ONLY = CONFIG.model_copy(update={"masked_level_0": False})
UNGUIDED = CONFIG.model_copy(update={"has_null_condition": False})
ALIGNED = CONFIG.model_copy(update={"alignment": AlignmentHead(layer=1, head=1)})
UNIFIED = ALIGNED.model_copy(update={"unified_positions": True})
CAUSAL, BLOCKS = (CONFIG.model_copy(update={"nar_mask": m}) for m in ("causal", "block_causal"))


@pytest.mark.parametrize(
    ("knobs", "config", "way"),
    [
        ({}, CONFIG, "ar"),
        ({"preset": "vall_e"}, CONFIG, "masked"),
        ({"preset": "vall_e"}, AR_ONLY, "ar"),
        ({"preset": "vall_e", "temperature": 0.5}, CONFIG, "ar"),
        ({"preset": "vall_e", "temperature": 1.0, "nar_len_steps": 9}, CONFIG, "masked"),
        ({"level_0": "masked", "nar_temperature": 0.5, "pause_s": 1.0}, CONFIG, "masked"),
    ],
)
def test_auto_is_masked_where_the_model_can_and_nothing_speaks_against(
    knobs: dict[str, object], config: ModelConfig, way: str
) -> None:
    chosen = resolve(SamplingParams.model_validate(knobs | {"seed": 0}))
    settled = choose_ar(chosen, knobs, config)
    assert settled == chosen.model_copy(update={"level_0": way})
    assert choose_ar(settled, knobs, config) == settled


def settle(params: SamplingParams, knobs: dict[str, object], config: ModelConfig) -> SamplingParams:
    check_limits(params, limits_of(config))
    return choose_ar(params, knobs, config)


@pytest.mark.parametrize(
    ("knobs", "config", "param", "words"),
    [
        ({"level_0": "masked"}, AR_ONLY, "level_0", "masked passes"),
        ({"level_0": "masked"}, UNGUIDED, "nar_len_cfg_strength", "must be 1"),
        ({"cfg_strength": 1.5}, UNGUIDED, "cfg_strength", "must be 1"),
        ({"nar_window_frames": 15}, CAUSAL, "nar_window_frames", "need no windows"),
        ({"nar_window_frames": 15}, BLOCKS, "nar_window_frames", "need no windows"),
        ({"logit_bias": {CONFIG.stop_token + 1: 1.0}}, CONFIG, "logit_bias", "is the stop"),
        ({"dry_sequence_breakers": [-1]}, CONFIG, "dry_sequence_breakers", "is the stop"),
        ({"text_lookahead_words": 1}, CONFIG, "text_lookahead_words", "no attention head"),
        ({"text_lookahead_words": 1}, UNIFIED, "text_lookahead_words", "must not grow"),
    ],
)
def test_what_a_model_cannot_do_is_refused(
    knobs: dict[str, object], config: ModelConfig, param: str, words: str
) -> None:
    chosen = resolve(SamplingParams.model_validate(knobs | {"seed": 0}))
    with pytest.raises(InvalidRequest, match=words) as refused:
        settle(chosen, knobs, config)
    assert refused.value.param == param


@pytest.mark.parametrize(
    "knobs",
    [
        {"level_0": "masked", "top_k": 5},
        {"nar_len_steps": 9},
        {"preset": "vall_e", "nar_len_steps": 9, "temperature": 0.5},
        {"nar_left_context_frames": 3},
        {"nar_lookahead_frames": 3},
    ],
)
def test_a_knob_of_the_other_method_or_of_no_window_is_idle(knobs: dict[str, object]) -> None:
    chosen = resolve(SamplingParams.model_validate(knobs | {"seed": 0}))
    settled = settle(chosen, knobs, CONFIG)
    assert idle_knobs(settled, knobs).keys() == knobs.keys() & IDLE


@pytest.mark.parametrize("lookahead", [0, 1])
def test_a_take_is_gone_on_from_with_the_look_ahead_that_it_was_drawn_with(lookahead: int) -> None:
    params = resolve(SamplingParams(seed=0, text_lookahead_words=1))
    params = params.model_copy(update={"level_0": "ar"})
    kept = Resume(
        (UtteranceResult(np.zeros((3, CONFIG.levels), np.int16), "stop", phonemes="a"),),
        0,
        lookahead,
    )
    if lookahead == 1:
        check_kept(JOB, kept, [Utterance("a", "a")], params, ALIGNED)
        return
    with pytest.raises(InvalidRequest, match="text_lookahead_words 0") as refused:
        check_kept(JOB, kept, [Utterance("a", "a")], params, ALIGNED)
    assert refused.value.param == "text_lookahead_words"


def test_windows_are_taken_where_all_is_seen() -> None:
    check_limits(SamplingParams(nar_window_frames=15), limits_of(CONFIG))


@pytest.mark.parametrize(
    ("mask", "size", "plan"),
    [("full", 0, "whole"), ("full", 15, "windows"), ("block_causal", 0, "chunks")],
)
def test_the_nar_plan_follows_from_the_mask_and_the_windows(
    mask: str, size: int, plan: str
) -> None:
    config = CONFIG.model_copy(update={"nar_mask": mask})
    assert nar_plan(config, SamplingParams(nar_window_frames=size)) == plan

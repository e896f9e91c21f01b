"""What a job may ask of the loaded model: what that cannot honour is refused before any work."""

import math
from collections.abc import Collection, Sequence
from dataclasses import replace

from app.engine.admission.durations import check_audio_s, spoken_symbols, stretched
from app.engine.admission.durations import pauses_s as pauses_of
from app.engine.core import USUAL_PHONEME_S, NarPlan, Resume, SpeechJob
from app.engine.errors import InvalidRequest
from models.config import ModelConfig
from models.text import Utterance
from models.voices.voice import Voice
from samplers.knobs.features import heeds, is_guided
from samplers.knobs.params import SamplingParams, hints, off_value


def choose_ar(
    params: SamplingParams, overridden: Collection[str], config: ModelConfig
) -> SamplingParams:
    """Return ``params`` with `level_0` either `ar`, token by token, or `masked`.

    ``overridden`` are the knobs that the caller set to other values than the preset's: where one of
    them acts only token by token, `auto` is that. Raises InvalidRequest for guidance without
    training.
    """
    method = params.level_0
    if method == "auto":
        masked = config.masked_level_0 and all(_masked_heeds(one, params) for one in overridden)
        method = "masked" if masked else "ar"
    guided = method == "masked" and is_guided(params, "masked")
    if guided and not config.has_null_condition:
        raise InvalidRequest(
            "the model was not trained for guidance: nar_len_cfg_strength must be 1",
            param="nar_len_cfg_strength",
        )
    return params.model_copy(update={"level_0": method})


def _masked_heeds(knob: str, params: SamplingParams) -> bool:
    """Return whether masked passes heed a knob, or it is at the value that does nothing."""
    off = "off" in hints(knob) and getattr(params, knob) == off_value(knob)
    return off or knob == "level_0" or heeds(knob, "masked")


def nar_plan(config: ModelConfig, params: SamplingParams) -> NarPlan:
    """Return how much of an utterance the NAR levels are sampled from at a time."""
    if config.nar_mask != "full":
        return "chunks"
    return "windows" if params.nar_window_frames else "whole"


def check_kept(
    job: SpeechJob,
    kept: Resume,
    utterances: Sequence[Utterance],
    params: SamplingParams,
    config: ModelConfig,
) -> None:
    """Raise InvalidRequest if a take cannot be gone on from.

    That is, if the text up to the cut differs, other levels or another look-ahead are asked for,
    level 0 is not sampled token by token, or no room is left for new frames.
    """
    if job.part.more and not any(one.phonemes for one in utterances):
        return  # nothing is sampled of it
    before = job.part.before
    first = len(before.utterances) if before else 0
    if params.level_0 != "ar":
        raise InvalidRequest(
            "masked passes draw all frames at once: level_0 must be ar to go on from a take",
            param="continue_from",
        )
    if params.text_lookahead_words != kept.lookahead_words:
        raise InvalidRequest(
            f"the frames of the take were drawn with text_lookahead_words {kept.lookahead_words},"
            " which must stay",
            param="text_lookahead_words",
        )
    levels = 1 + min(params.nar_levels, config.levels - 1)
    for number, earlier in enumerate(kept.utterances):
        own = number - first
        if own < 0 or (own >= len(utterances) and job.part.more):
            continue
        if own >= len(utterances) or utterances[own].phonemes != earlier.phonemes:
            raise InvalidRequest(
                f"utterance {number} of the text is not read as that of the take, so its frames"
                " cannot be kept",
                param="continue_from",
            )
        if len(earlier.codes) and earlier.codes.shape[1] != levels:
            raise InvalidRequest(
                f"the take has {earlier.codes.shape[1]} levels of codes, this request would draw"
                f" {levels}: nar_levels must be {earlier.codes.shape[1] - 1}",
                param="nar_levels",
            )


def check_prompted(params: SamplingParams, voice: Voice) -> None:
    """Raise InvalidRequest for knobs of a prompt that a voice does not have."""
    for knob in ("penalty_includes_prompt", "prompt_as_prefix"):
        if getattr(params, knob) and voice.audio is None:
            raise InvalidRequest(
                f"the model hears no prompt of this voice: {knob} must be false", param=knob
            )


def limited(
    job: SpeechJob,
    utterances: Sequence[Utterance],
    pause_s: float,
    frame_rate_hz: float,
    max_audio_s: float,
) -> SpeechJob:
    """Return a job with `max_duration_s` such that its audio cannot exceed ``max_audio_s``.

    The audio of earlier jobs of the same speech counts, and a `speed` above 1 does not raise the
    limit. What has more, by its pauses and its text at the usual pace, is refused.
    """
    if math.isinf(max_audio_s):
        return job
    pauses_s = pauses_of(utterances, pause_s, more=job.part.more)
    spoken_s = USUAL_PHONEME_S * spoken_symbols(utterances)
    before = job.part.before
    before_s = before.audio_s + before.pause_owed_s if before else 0.0
    sampled_s = before.sound_frames / frame_rate_hz if before else 0.0
    if job.max_duration_s is not None:
        spoken_s = min(spoken_s, max(0.0, job.max_duration_s - sampled_s))
    if job.part.kept is not None:
        kept = sum(len(one.codes) / one.rate for one in job.part.kept.utterances)
        spoken_s = max(spoken_s, kept / frame_rate_hz)
    check_audio_s(before_s + spoken_s, pauses_s, job.output.speed, max_audio_s)
    left_s = sampled_s + max_audio_s / stretched(1.0, job.output.speed) - before_s - pauses_s
    return replace(job, max_duration_s=min(left_s, job.max_duration_s or left_s))

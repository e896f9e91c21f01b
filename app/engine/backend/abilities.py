"""What the loaded model can do with a request: which method draws its codes, and which knobs act.

Everything here is decided, or refused, before any work.
"""

from collections.abc import Collection, Sequence
from typing import Any

from app.engine.errors import InvalidRequest
from app.engine.job import KeptTake, NarPlan, SpeechJob
from models.config import ModelConfig
from models.text import Utterance
from models.voices.voice import Voice
from samplers.knobs.features import is_guided
from samplers.knobs.params import SamplingParams, off_value

_SHARED_GROUPS = {"request", "nar", "joining"}  # of knobs that act with either method of level 0


def choose_level_0(
    params: SamplingParams, moved: Collection[str], config: ModelConfig
) -> SamplingParams:
    """Return ``params`` with `level_0` either `ar`, token by token, or `masked`.

    ``moved`` are the knobs that the caller set to other values than the preset's. Raises
    InvalidRequest if the model cannot draw masked, or one of them acts only with the other method.
    """
    method = params.level_0
    if method == "auto":
        masked = config.masked_level_0 and not _idle(params, moved, "masked")
        method = "masked" if masked else "ar"
    if method == "masked":
        if not config.masked_level_0:
            raise InvalidRequest("the model cannot draw level 0 in masked passes", param="level_0")
        if is_guided(params, "masked") and not config.has_null_condition:
            raise InvalidRequest(
                "the model was not trained for guidance: nar_len_cfg_strength must be 1",
                param="nar_len_cfg_strength",
            )
    if idle := _idle(params, moved, method):
        other = "masked" if method == "ar" else "ar"
        raise InvalidRequest(f"{idle[0]} acts only with level_0={other}", param=idle[0])
    return params.model_copy(update={"level_0": method})


def _idle(params: SamplingParams, moved: Collection[str], method: str) -> list[str]:
    """Return the moved knobs, not at their off value, that do nothing with a method of level 0."""
    idle = []
    for knob, field in SamplingParams.model_fields.items():
        extra: Any = field.json_schema_extra
        ui = extra["x-ui"]
        if knob not in moved or knob == "level_0" or ui["group"] in _SHARED_GROUPS:
            continue
        own_method = "masked" if ui["group"] == "masked" else "ar"
        off = "off" in ui and getattr(params, knob) == off_value(knob)
        if own_method != method and not off:
            idle.append(knob)
    return idle


def nar_plan(config: ModelConfig, params: SamplingParams) -> NarPlan:
    """Return how much of an utterance the finer levels are drawn from at a time."""
    if config.nar_mask != "full":
        return "chunks"
    return "windows" if params.nar_window_frames else "whole"


def check_alignment(config: ModelConfig) -> None:
    """Raise InvalidRequest for timestamps of a model of which no head is known to align."""
    if config.alignment is None:
        raise InvalidRequest(
            "no attention head of the loaded model is known to follow the text; `valle-serve"
            " calibrate` finds it, and TTS_ALIGNMENT names it",
            param="timestamps",
        )


def check_kept(
    job: SpeechJob,
    kept: KeptTake,
    utterances: Sequence[Utterance],
    params: SamplingParams,
    config: ModelConfig,
) -> None:
    """Raise InvalidRequest if a take cannot be gone on from.

    That is, if the text up to the cut differs, other levels are asked for, level 0 is not drawn
    token by token, or no room is left for new frames.
    """
    first = len(job.before.utterances) if job.before else 0
    if params.level_0 != "ar":
        raise InvalidRequest(
            "masked passes draw all frames at once: level_0 must be ar to go on from a take",
            param="continue_from",
        )
    levels = 1 + min(params.nar_levels, config.levels - 1)
    for number, earlier in enumerate(kept.utterances):
        own = number - first
        if own < 0 or (own >= len(utterances) and job.more):
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


def check_windows(params: SamplingParams, moved: Collection[str], config: ModelConfig) -> None:
    """Raise InvalidRequest for windows that the model does not need, or a context without them."""
    if params.nar_window_frames:
        if config.nar_mask != "full":
            raise InvalidRequest(
                "no frame of the model's finer levels sees a later block, so they need no windows:"
                " nar_window_frames must be 0",
                param="nar_window_frames",
            )
        return
    for knob in ("nar_left_context_frames", "nar_lookahead_frames"):
        if knob in moved:
            raise InvalidRequest(f"{knob} acts only with nar_window_frames", param=knob)


def check_trained(params: SamplingParams, voice: Voice, config: ModelConfig) -> None:
    """Raise InvalidRequest for guidance without training, or knobs of an unheard prompt."""
    prompted = voice.audio is not None and config.max_prompt_frames > 0
    untrained = "the model was not trained for this guidance: {} must be 1"
    unprompted = "the model hears no prompt of this voice: {} must be false"
    for knob, asked, possible, reason in (
        ("cfg_strength", is_guided(params), config.has_null_condition, untrained),
        ("nar_cfg_strength", is_guided(params, "nar"), config.nar_has_null_condition, untrained),
        ("penalty_includes_prompt", params.penalty_includes_prompt, prompted, unprompted),
        ("prompt_as_prefix", params.prompt_as_prefix, prompted, unprompted),
    ):
        if asked and not possible:
            raise InvalidRequest(reason.format(knob), param=knob)

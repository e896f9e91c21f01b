"""Which values of fields the loaded model takes; the OpenAPI document tells them."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from app.engine.errors import InvalidRequest
from models.config import ModelConfig
from samplers.knobs.conditions import Condition, at_most, codes_up_to, one_of
from samplers.knobs.params import SamplingParams

_SHOWN_DIGITS = 20


@dataclass(frozen=True)
class Limit:
    """The values of a field that a model takes, and what is said of others."""

    allowed: Condition
    say: Callable[[Any], str]  # why a value is refused


def limits_of(config: ModelConfig) -> dict[str, Limit]:
    """Return the limits of a model's knobs, and of `timestamps`, by field."""
    untrained = "the model was not trained for this guidance: {} must be 1"
    unheard = "the model hears no prompt: {} must be false"
    unaligned = (
        "no attention head of the loaded model is known to follow the text; `valle-serve"
        " calibrate` finds it, and TTS_ALIGNMENT names it"
    )
    unwindowed = (
        "no frame of the model's NAR levels sees a later block, so they need no windows:"
        " nar_window_frames must be 0"
    )
    placed = (
        "the positions of this model's frames are counted from the text, which must not grow:"
        " text_lookahead_words must be 0"
    )
    prefixed = "with this model a prompt always begins the response: prompt_as_prefix must be false"
    unmasked = "the model cannot draw level 0 in masked passes"
    last = config.stop_token
    prompted = config.max_prompt_frames > 0
    can: Sequence[tuple[str, bool, Condition, str]] = (
        ("level_0", config.masked_level_0, one_of("ar", "auto"), unmasked),
        ("cfg_strength", config.has_null_condition, at_most(1), untrained),
        ("nar_cfg_strength", config.nar_has_null_condition, at_most(1), untrained),
        ("prompt_as_prefix", config.prompt != "response", one_of(False), prefixed),
        ("prompt_as_prefix", prompted, one_of(False), unheard),
        ("penalty_includes_prompt", prompted, one_of(False), unheard),
        ("nar_window_frames", config.nar_mask == "full", one_of(0), unwindowed),
        ("text_lookahead_words", config.alignment is not None, at_most(0), unaligned),
        ("text_lookahead_words", not config.unified_positions, at_most(0), placed),
        ("return_timestamps", config.alignment is not None, one_of(False), unaligned),
        ("timestamps", config.alignment is not None, one_of("none"), unaligned),
    )
    found = {
        field: Limit(allowed, partial(_say, reason.format(field)))
        for field, able, allowed, reason in can
        if not able
    }
    for field in ("logit_bias", "dry_sequence_breakers"):
        found[field] = Limit(codes_up_to(last), partial(_say_code, field, last))
    return found


def check_limits(params: SamplingParams, limits: Mapping[str, Limit]) -> None:
    """Raise InvalidRequest for the first knob with a value that the model does not take."""
    for field in limits:
        if field in SamplingParams.model_fields:
            check_limit(field, getattr(params, field), limits)


def check_limit(field: str, value: object, limits: Mapping[str, Limit]) -> None:
    """Raise InvalidRequest if a field has a value that the model does not take."""
    limit = limits.get(field)
    if limit is not None and not limit.allowed.holds(value):
        raise InvalidRequest(limit.say(value), param=field)


def _say(reason: str, _value: object) -> str:
    return reason


def _say_code(field: str, last: int, codes: Iterable[int]) -> str:
    wrong = next(code for code in codes if not 0 <= code <= last)
    return (
        f"{field}: there is no code {str(wrong)[:_SHOWN_DIGITS]}; the codes are 0 to"
        f" {last - 1}, and {last} is the stop"
    )


def schemas_of(limits: Mapping[str, Limit]) -> dict[str, dict[str, Any]]:
    """Return what to add to the JSON schema of each field."""
    return {field: dict(limit.allowed.schema) for field, limit in limits.items()}

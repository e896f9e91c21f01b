"""Which way a job goes to level 0, settled before any work: step by step, or in masked passes."""

from typing import Any

from app.engine.errors import InvalidRequest
from models.config import ModelConfig
from samplers.knobs.params import SamplingParams, off_value

_BOTH = {"request", "nar", "joining"}  # groups of knobs that matter however level 0 is drawn


def choose_level_0(
    params: SamplingParams, preset: SamplingParams, config: ModelConfig
) -> SamplingParams:
    """Settle how level 0 is drawn.

    Args:
        params: Resolved.
        preset: What they would be had the caller moved no knob.
        config: What the model can do.

    Returns:
        The same with `level_0` either `ar` or `masked`.

    Raises:
        InvalidRequest: The model cannot, or a knob was moved that belongs to the other way.
    """
    way = params.level_0
    if way == "auto":
        can = config.masked_level_0 and not _moved(params, preset, masked=False)
        way = "masked" if can else "ar"
    if way == "masked":
        if not config.masked_level_0:
            raise InvalidRequest("the model cannot draw level 0 in masked passes", param="level_0")
        if params.nar_len_cfg_strength > 1 and not config.has_null_condition:
            raise InvalidRequest(
                "the model was not trained for guidance: nar_len_cfg_strength must be 1",
                param="nar_len_cfg_strength",
            )
    if idle := _moved(params, preset, masked=way == "ar"):
        other = "masked" if way == "ar" else "ar"
        raise InvalidRequest(f"{idle[0]} acts only with level_0={other}", param=idle[0])
    return params.model_copy(update={"level_0": way})


def _moved(params: SamplingParams, preset: SamplingParams, *, masked: bool) -> list[str]:
    """Return which knobs the caller moved, and not off, of those that one way alone heeds."""
    moved = []
    for knob, field in SamplingParams.model_fields.items():
        extra: Any = field.json_schema_extra
        ui = extra["x-ui"]
        value = getattr(params, knob)
        of_this_way = knob != "level_0" and ui["group"] not in _BOTH
        if not of_this_way or (ui["group"] == "masked") != masked:
            continue
        if value != getattr(preset, knob) and not ("off" in ui and value == off_value(knob)):
            moved.append(knob)
    return moved

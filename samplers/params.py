"""The one declaration of every sampling knob: name, type, bounds, default, off value, one sentence.

The OpenAPI schema, the 422 messages, the command line's flags, the table in the docs, the studio's
controls and the batch's tensors all read this file. Nothing else may give a knob a default
(`tests/samplers/test_single_source.py` walks the source). It does not know torch.

Each knob's JSON schema carries `x-ui`: `group`, `unit`, `off` (the value at which the knob does
nothing), `step` (of a slider) and, where there is no upper bound, `top` (of a slider).
"""

import secrets
from collections.abc import Mapping
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

from samplers.conflicts import settle
from samplers.presets import PRESETS

PenaltyMode = Literal["signed", "additive", "raw"]


def _knob(
    default: Any,
    description: str,
    *,
    group: str,
    off: Any = None,
    unit: str = "",
    step: float | None = None,
    top: float | None = None,
    **bounds: Any,
) -> Any:
    hints = {"group": group, "unit": unit, "off": off, "step": step, "top": top}
    ui = {name: hint for name, hint in hints.items() if hint is not None and hint != ""}
    return Field(default, description=description, json_schema_extra={"x-ui": ui}, **bounds)


class SamplingParams(BaseModel):
    """How codes are drawn: every knob of the AR stage in the order of use, then the NAR's."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    # fmt: off
    preset: str = _knob(
        "auto",
        "Named set of knobs to start from; `auto` is the one named in the loaded model's card.",
        group="request",
    )
    seed: int | None = _knob(
        None,
        "Seed of every draw; the same request with the same seed gives the same codes. "
        "Without one a seed is drawn and reported.",
        group="request", ge=0, le=2**63 - 1,
    )

    logit_bias: dict[int, float] = _knob(
        {}, "Code id to a value added to its logit; -100 as good as bans it.",
        group="bans", off={}, unit="nats",
    )
    ban_tokens: tuple[int, ...] = _knob(
        (), "Code ids that are never drawn; ids outside the codebook have no effect.",
        group="bans", off=[],
    )
    min_frames: int = _knob(
        0, "Speech cannot end before this many frames.",
        group="length", off=0, unit="frames", step=1, top=750, ge=0,
    )

    repetition_penalty: float = _knob(
        1.0, "Divides the odds of recently drawn codes, once per occurrence; above 1 discourages.",
        group="repetition", off=1.0, step=0.01, top=2.0, gt=0.0,
    )
    repetition_penalty_decay: float = _knob(
        0.0,
        "Exponent on the distance d of an occurrence: its penalty is repetition_penalty * d^decay; "
        "below 0 old codes are punished less.",
        group="repetition", off=0.0, step=0.05, ge=-2.0, le=2.0,
    )
    repetition_penalty_window: int = _knob(
        75, "How many of the newest codes count as repetition; 0 is all of them.",
        group="repetition", unit="frames", step=1, top=750, ge=0,
    )
    repetition_penalty_one_time: bool = _knob(
        False, "Count only the newest occurrence of a code instead of every one.",
        group="repetition", off=False,
    )
    repetition_penalty_mode: PenaltyMode = _knob(
        "signed",
        "How the penalty P acts: `signed` divides positive and multiplies negative logits, "
        "`additive` subtracts ln P, `raw` always divides (as the reference does).",
        group="repetition",
    )
    repetition_penalty_clamp: bool = _knob(
        True,
        "Never let the distance turn an occurrence's penalty into a reward; "
        "off only to reproduce the reference.",
        group="repetition", off=False,
    )
    length_penalty: float = _knob(
        0.0, "Power of the length by which the stop's odds fall; above 0 is longer, below shorter.",
        group="length", off=0.0, step=0.05, ge=-2.0, le=2.0,
    )
    length_penalty_mode: PenaltyMode = _knob(
        "signed", "How the length penalty acts on the stop's logit; as repetition_penalty_mode.",
        group="length",
    )

    temperature: float = _knob(
        1.0, "Divides the logits; below 1 is safer, above 1 more varied, 0 or less is greedy.",
        group="temperature", off=1.0, step=0.05, top=2.0, ge=-1.0,
    )
    top_k: int = _knob(
        0, "Keep the k likeliest codes (and ties); 0 or -1 keeps all.",
        group="truncation", off=0, step=1, top=1024, ge=-1,
    )
    top_p: float = _knob(
        1.0, "Keep the likeliest codes until their probabilities sum to this; 0 keeps one.",
        group="truncation", off=1.0, step=0.01, ge=0.0, le=1.0,
    )
    min_p: float = _knob(
        0.0, "Keep codes at least this fraction as likely as the likeliest.",
        group="truncation", off=0.0, step=0.01, ge=0.0, le=1.0,
    )
    min_tokens_to_keep: int = _knob(
        1, "min_p keeps at least this many codes.",
        group="truncation", off=1, step=1, top=64, ge=1,
    )

    nar_temperature: float = _knob(
        0.0, "Temperature of the finer codebook levels; 0 or less is greedy.",
        group="nar", off=0.0, step=0.05, top=2.0, ge=-1.0,
    )
    nar_level_temperatures: tuple[float, ...] = _knob(
        (), "Temperatures of level 1, 2, ...; levels past the end use nar_temperature.",
        group="nar", off=[], max_length=32,
    )
    nar_top_k: int = _knob(
        0, "As top_k, for the finer levels.",
        group="nar", off=0, step=1, top=1024, ge=-1,
    )
    nar_top_p: float = _knob(
        1.0, "As top_p, for the finer levels.",
        group="nar", off=1.0, step=0.01, ge=0.0, le=1.0,
    )
    nar_min_p: float = _knob(
        0.0, "As min_p, for the finer levels.",
        group="nar", off=0.0, step=0.01, ge=0.0, le=1.0,
    )
    # fmt: on

    @field_validator("preset")
    @classmethod
    def _known_preset(cls, name: str) -> str:
        if name != "auto" and name not in PRESETS:
            raise ValueError(f"unknown preset {name!r}; known: auto, {', '.join(PRESETS)}")
        return name

    @field_validator("top_k", "nar_top_k")
    @classmethod
    def _one_off_value(cls, count: int) -> int:
        return max(count, 0)

    @field_validator("nar_level_temperatures")
    @classmethod
    def _bounded(cls, temperatures: tuple[float, ...]) -> tuple[float, ...]:
        if any(temperature < -1 for temperature in temperatures):
            raise ValueError("every temperature must be at least -1")
        return temperatures


def off_value(knob: str) -> Any:
    """The value at which ``knob`` does nothing, as its declaration states it."""
    extra = SamplingParams.model_fields[knob].json_schema_extra
    assert isinstance(extra, dict)
    ui = extra["x-ui"]
    assert isinstance(ui, dict)
    return ui["off"]


def resolve(
    params: SamplingParams, card_preset: str | Mapping[str, Any] = "default"
) -> SamplingParams:
    """Give every knob its value: what the caller set > the preset > the declared default.

    A knob that the caller set switches off a conflicting knob of the preset.

    Args:
        params: What the caller sent; a subclass (a request) is accepted, its other fields ignored.
        card_preset: What `preset="auto"` means: the preset that the loaded model's card names, or
            the card's own set of knobs.

    Returns:
        A plain `SamplingParams` with every knob set, the preset named and the seed drawn.

    Raises:
        ConflictError: Two knobs that the caller set contradict each other; it names them.
        ValueError: The card names an unknown preset or an illegal value.
    """
    knobs = SamplingParams.model_fields
    chosen = {name: getattr(params, name) for name in knobs if name in params.model_fields_set}
    source = card_preset if params.preset == "auto" else params.preset
    if isinstance(source, str) and source not in PRESETS:
        raise ValueError(f"unknown preset {source!r}; known: {', '.join(PRESETS)}")
    base = PRESETS[source] if isinstance(source, str) else source
    named = source if isinstance(source, str) else "auto"
    merged = SamplingParams.model_validate({**base, **chosen, "preset": named})
    values = {name: getattr(merged, name) for name in knobs}
    values |= {knob: off_value(knob) for knob in settle(merged, chosen=chosen.keys())}
    if values["seed"] is None:
        values["seed"] = secrets.randbits(32)  # short enough to type
    return SamplingParams.model_validate(values)

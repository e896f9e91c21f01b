"""Resolving a request: what the caller set over the preset over the declared defaults. Torch-free.

If the caller set both knobs of a conflict, the request is refused; if the caller set one and a
preset the other, the preset's is switched off.
"""

import secrets
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from samplers.knobs.conditions import Conditions, excluded, hold, lacking
from samplers.knobs.features import FEATURES, Feature
from samplers.knobs.params import SamplingParams, off_value
from samplers.knobs.presets import AUTO, PRESETS, Presets
from samplers.knobs.steps import ORDERS, StepName


class ConflictError(ValueError):
    """Knobs that the caller set contradict each other; ``fields`` are their names."""

    def __init__(self, fields: tuple[str, ...], reason: str) -> None:
        super().__init__(f"{' and '.join(fields)}: {reason}")
        self.fields = fields


@dataclass(frozen=True)
class Conflict:
    """Two knobs, at which values they contradict each other, and why, for the message."""

    knobs: tuple[str, str]
    when: Conditions
    reason: str


_TRUNCATION = [
    name for name, one in FEATURES.items() if one.step is not None and one.group == "truncation"
]
"""The filters of the order."""

_MOVED: Sequence[StepName] = ("temperature", "top_k", "top_p", "min_p")
"""The steps whose knobs entropix moves."""


def _pairs(left: str, others: Iterable[str], reason: str) -> list[Conflict]:
    one = FEATURES[left]
    return [
        Conflict((one.knob, other.knob), {**one.when, **other.when}, reason)
        for other in map(FEATURES.__getitem__, others)
    ]


def _left_out(feature: Feature, step: StepName, reason: str) -> Conflict:
    """Return the conflict of a feature with the orders that leave out a step."""
    order = {"sampler_order": lacking(step, {str(name): steps for name, steps in ORDERS.items()})}
    return Conflict((feature.knob, "sampler_order"), {**feature.when, **order}, reason)


CONFLICTS: Sequence[Conflict] = (
    *_pairs("mirostat_mode", _TRUNCATION, "mirostat chooses what is kept by itself"),
    *_pairs(
        "mirostat_mode",
        ("xtc_probability", "ras"),
        "both want the last word on what is drawn",
    ),
    *_pairs(
        "greedy",
        ("xtc_probability", "mirostat_mode", "ras", "entropix", "min_temperature"),
        "a greedy row has nothing to draw",
    ),
    *_pairs("entropix", ("mirostat_mode", "ras"), "both want the last word on what is drawn"),
    *_pairs("entropix", ("min_temperature",), "both move the temperature"),
    *_pairs(
        "beam_width",
        ("mirostat_mode", "xtc_probability", "ras", "entropix"),
        "a beam search draws nothing",
    ),
    *_pairs("beam_width", ("greedy",), "a greedy row leaves nothing to search"),
    *_pairs(
        "best_of", ("greedy",), "a greedy row has nothing to draw: all candidates would be the same"
    ),
    *_pairs("best_of", ("beam_width", "branch"), "both choose between several hypotheses"),
    *_pairs("backtrack", ("beam_width", "branch"), "both remove codes that were drawn"),
    *_pairs(
        "text_lookahead_words",
        ("best_of", "beam_width", "branch"),
        "whole takes are chosen from, so nothing is heard before the sentence is known",
    ),
    *(
        _left_out(
            FEATURES["entropix"],
            step,
            "the order leaves out a step whose knob entropix moves",
        )
        for step in _MOVED
    ),
    _left_out(FEATURES["temperature_last"], "temperature", "the order has no temperature to move"),
    *(
        _left_out(feature, feature.step, "the order leaves this step out, which switches it off")
        for feature in FEATURES.values()
        if feature.step is not None
    ),
)


def contradictions() -> list[dict[str, Any]]:
    """Return JSON schemas of what is refused: requests that set both knobs of a conflict."""
    defaults = {name: field.default for name, field in SamplingParams.model_fields.items()}
    return [excluded(one.when, defaults, one.knobs) for one in CONFLICTS]


def settle(params: SamplingParams, *, chosen: Collection[str]) -> tuple[str, ...]:
    """Return the names of a preset's knobs to switch off, as they contradict knobs of the caller.

    ``params`` are the caller's values over the preset's over the defaults; ``chosen`` the knobs
    that the caller set. Raises ConflictError if both sides of a conflict come from the caller, or
    both from the preset.
    """
    losers: list[str] = []
    for conflict in CONFLICTS:
        if not hold(conflict.when, params):
            continue
        stays = [knob for knob in conflict.knobs if knob in chosen]
        if len(stays) != 1:
            raise ConflictError(conflict.knobs, conflict.reason)
        losers += [knob for knob in conflict.knobs if knob not in stays]
    return tuple(losers)


class UnknownPreset(ValueError):
    """There is no preset of this name; the message lists the known ones."""


def look_up(name: str, presets: Presets) -> Mapping[str, Any]:
    """Return the knobs that a preset sets; raises UnknownPreset if there is none of this name."""
    if name not in presets:
        raise UnknownPreset(f"unknown preset {name!r}; known: {AUTO}, {', '.join(presets)}")
    return presets[name]


def resolve(
    params: SamplingParams,
    card_preset: str | Mapping[str, Any] = "default",
    presets: Presets = PRESETS,
) -> SamplingParams:
    """Return every knob's value: the caller's, else the preset's, else the declared default.

    A knob that the caller set switches off a conflicting knob of the preset. The preset is named in
    the result, the seed chosen. Of a subclass of `SamplingParams` (a request) other fields are
    ignored. ``card_preset`` is what `auto` means: a name, or the model's card's own set of knobs.
    """
    knobs = SamplingParams.model_fields
    chosen = {name: getattr(params, name) for name in knobs if name in params.model_fields_set}
    source = card_preset if params.preset == AUTO else params.preset
    base = look_up(source, presets) if isinstance(source, str) else source
    named = source if isinstance(source, str) else AUTO
    merged = SamplingParams.model_validate({**base, **chosen, "preset": named})
    values = {name: getattr(merged, name) for name in knobs}
    losers = settle(merged, chosen=chosen.keys())
    values |= {name: off_value(name) for name in losers}
    if values["seed"] is None:
        values["seed"] = secrets.randbits(32)  # short enough to type
    resolved = SamplingParams.model_validate(values)
    settle(resolved, chosen=knobs.keys())  # giving way may not be enough
    return resolved

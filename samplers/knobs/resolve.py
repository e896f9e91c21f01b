"""Resolving a request: what the caller set over the preset over the declared defaults."""

import secrets
from collections.abc import Mapping
from typing import Any

from samplers.knobs.conflicts import settle
from samplers.knobs.params import SamplingParams, off_value
from samplers.knobs.presets import AUTO, PRESETS, Presets


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
    the result, the seed drawn. Of a subclass of `SamplingParams` (a request) other fields are
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

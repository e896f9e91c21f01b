"""A knob that another must switch on says so, and is named where that is not so."""

from typing import Any

import pytest

from samplers.knobs.features import idle_knobs, needs_of, param_warnings
from samplers.knobs.params import SamplingParams, hints, off_value
from samplers.knobs.resolve import resolve

ON = {"entropix": True, "ras": True, "backtrack": True, "level_0": "masked", "min_p": 0.1}
ON |= {"xtc_probability": 0.5, "min_temperature": 0.5}
"""Values at which knobs are on that are no numbers."""

DEPENDENT = [name for name in SamplingParams.model_fields if needs_of(name)]


@pytest.mark.parametrize("knob", DEPENDENT)
def test_what_a_knob_needs_are_other_knobs_at_legal_values(knob: str) -> None:
    for need in needs_of(knob):
        assert need
        assert knob not in need
        for name, values in need.items():
            if not values:
                off_value(name)
            for value in values:
                assert getattr(SamplingParams.model_validate({name: value}), name) == value


@pytest.mark.parametrize("knob", DEPENDENT)
def test_a_knob_is_named_alone_and_not_once_it_has_what_it_needs(knob: str) -> None:
    told = idle_knobs(resolve(SamplingParams()), {knob})
    assert [*told] == [knob]
    given = _lacking(knob, SamplingParams())
    params = SamplingParams.model_validate(given)
    assert knob not in idle_knobs(params, {knob, *given})
    assert not idle_knobs(params, given)


def _lacking(knob: str, params: SamplingParams) -> dict[str, Any]:
    """Return the first alternative of everything that a knob lacks."""
    if not idle_knobs(params, {knob}):
        return {}
    found: dict[str, Any] = {}
    for need in needs_of(knob):
        name, values = next(iter(need.items()))
        found[name] = values[0] if values else ON.get(name, 2)
        found |= _lacking(name, params)
    return found


def test_a_knob_of_a_preset_that_switches_it_on_is_not_named() -> None:
    sent = {"backtrack_max_silence", "cfg_rescale", "dry_base", "input"}
    params = resolve(SamplingParams(preset="builtin"))
    assert idle_knobs(params, sent) == {"dry_base": "dry_multiplier"}


def test_a_need_is_told_in_words() -> None:
    told = idle_knobs(
        SamplingParams(min_temperature=0.5), {"dynatemp_exponent", "min_tokens_to_keep"}
    )
    assert told == {
        "dynatemp_exponent": "dynatemp_mode entropy",
        "min_tokens_to_keep": "min_p or entropix",
    }


def test_only_entropix_with_the_thresholds_of_a_text_model_is_doubted() -> None:
    (doubt,) = param_warnings(SamplingParams(entropix=True))
    assert "calibrate" in doubt
    assert param_warnings(SamplingParams(entropix=True, entropix_low_entropy=0.4)) == []
    assert param_warnings(SamplingParams()) == []


def test_a_slider_lies_within_the_bounds_of_its_knob() -> None:
    for name in SamplingParams.model_fields:
        ends = [hints(name)[end] for end in ("bottom", "top") if end in hints(name)]
        for end in ends:
            SamplingParams.model_validate({name: end})
        assert ends == sorted(ends)

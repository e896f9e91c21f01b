"""The declaration of the knobs: bounds, hints, and what is refused."""

import json
import re
from typing import Any, get_args

import pytest
from pydantic import ValidationError

from samplers.knobs.knob import HEADINGS
from samplers.knobs.params import SamplingParams
from samplers.knobs.presets import AUTO

KNOBS = SamplingParams.model_fields
VALUES = {str(value) for field in KNOBS.values() for value in get_args(field.annotation)}


@pytest.mark.parametrize("knob", KNOBS)
def test_every_knob_has_one_sentence_a_group_and_hints(knob: str) -> None:
    field = KNOBS[knob]
    assert field.description
    assert field.description.endswith(".")
    assert "\n" not in field.description
    extra = field.json_schema_extra
    assert isinstance(extra, dict)
    hints = extra["x-ui"]
    assert isinstance(hints, dict)
    assert hints["heading"] == HEADINGS[str(hints["group"])]


@pytest.mark.parametrize("knob", KNOBS)
def test_what_a_description_has_in_backticks_is_a_knob_or_a_value(knob: str) -> None:
    named = re.findall(r"`([^`]+)`", KNOBS[knob].description or "")
    assert {*named} <= {*KNOBS, *VALUES, AUTO}


def test_the_schema_is_json_and_carries_bounds_and_hints() -> None:
    schema = json.loads(json.dumps(SamplingParams.model_json_schema()))
    top_p = schema["properties"]["top_p"]
    assert (top_p["minimum"], top_p["maximum"], top_p["default"]) == (0.0, 1.0, 1.0)
    assert top_p["x-ui"] == {
        "group": "truncation",
        "heading": HEADINGS["truncation"],
        "off": 1.0,
        "step": 0.01,
        "bottom": 0.2,
        "values": [0.8, 0.85, 0.9, 0.95, 1.0],
        "synonyms": "nucleus random variety",
    }


@pytest.mark.parametrize("knob", KNOBS)
def test_the_values_recommended_for_a_comparison_are_legal_and_differ(knob: str) -> None:
    extra: Any = KNOBS[knob].json_schema_extra
    values = extra["x-ui"].get("values", ())
    assert len(set(values)) == len(values) != 1
    for value in values:
        SamplingParams.model_validate({knob: value})


def test_the_few_knobs_of_a_first_view_have_names_in_words() -> None:
    extras: dict[str, Any] = {name: field.json_schema_extra for name, field in KNOBS.items()}
    labels = {
        name: extra["x-ui"]["label"] for name, extra in extras.items() if "label" in extra["x-ui"]
    }
    assert set(labels) == {"seed", "cfg_strength", "temperature", "pause_s"}
    assert len(set(labels.values())) == len(labels)


def test_params_are_frozen_and_refuse_unknown_names() -> None:
    with pytest.raises(ValidationError):
        SamplingParams(top_q=1)  # type: ignore[call-arg]
    with pytest.raises(ValidationError):
        SamplingParams().top_k = 3  # type: ignore[misc]


@pytest.mark.parametrize("number", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("knob", [name for name in KNOBS if KNOBS[name].annotation is float])
def test_no_knob_takes_a_number_that_is_not_finite(knob: str, number: float) -> None:
    with pytest.raises(ValidationError, match=knob):
        SamplingParams.model_validate({knob: number})


@pytest.mark.parametrize(
    ("knob", "value"),
    [
        ("temperature", -1.5),
        ("repetition_penalty", 0.0),
        ("repetition_penalty_decay", 2.5),
        ("repetition_penalty_window", -1),
        ("length_penalty", -2.5),
        ("top_k", -2),
        ("top_k", 1.5),
        ("top_p", 1.1),
        ("min_p", -0.1),
        ("min_tokens_to_keep", 0),
        ("min_frames", -1),
        ("best_of", 0),
        ("best_of", 9),
        ("beam_width", -1),
        ("seed", -1),
        ("seed", 2**63),
        ("logit_bias", {"3": float("nan")}),
        ("nar_level_temperatures", [0.5, -2]),
        ("nar_level_temperatures", [float("inf")]),
    ],
)
def test_values_out_of_bounds_are_refused_by_name(knob: str, value: object) -> None:
    with pytest.raises(ValidationError, match=knob):
        SamplingParams.model_validate({knob: value})


def test_minus_one_is_off_for_top_k_as_other_servers_have_it() -> None:
    assert SamplingParams(top_k=-1) == SamplingParams(top_k=0)

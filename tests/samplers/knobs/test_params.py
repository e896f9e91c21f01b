"""The declaration itself, and how a request's knobs get their values."""

import json
import subprocess
import sys

import pytest
from pydantic import ValidationError

from samplers.knobs.params import SamplingParams, off_value
from samplers.knobs.presets import PRESETS, UnknownPreset
from samplers.knobs.resolve import resolve

KNOBS = SamplingParams.model_fields


def test_params_need_no_torch() -> None:
    code = "import sys, samplers.knobs.params; sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


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
    assert hints["group"]


def test_the_schema_is_json_and_carries_bounds_and_hints() -> None:
    schema = json.loads(json.dumps(SamplingParams.model_json_schema()))
    top_p = schema["properties"]["top_p"]
    assert (top_p["minimum"], top_p["maximum"], top_p["default"]) == (0.0, 1.0, 1.0)
    assert top_p["x-ui"] == {"group": "truncation", "off": 1.0, "step": 0.01}


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


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_resolves_without_conflict(name: str) -> None:
    resolved = resolve(SamplingParams(preset=name))
    assert resolved.preset == name
    for knob, value in PRESETS[name].items():
        assert getattr(resolved, knob) == getattr(SamplingParams(**{knob: value}), knob)


def test_the_caller_beats_the_preset_which_beats_the_declaration() -> None:
    resolved = resolve(SamplingParams(preset="llama_cpp", top_k=7))
    assert (resolved.top_k, resolved.top_p) == (7, PRESETS["llama_cpp"]["top_p"])
    assert resolved.length_penalty == KNOBS["length_penalty"].default


def test_a_knob_set_to_its_declared_default_still_beats_the_preset() -> None:
    assert resolve(SamplingParams(preset="llama_cpp", top_k=0)).top_k == 0


def test_auto_is_the_preset_that_the_card_names_or_brings() -> None:
    assert resolve(SamplingParams(), "greedy").preset == "greedy"
    assert resolve(SamplingParams(), {"top_k": 9}).top_k == 9
    assert resolve(SamplingParams(preset="greedy"), {"top_k": 9}).top_k == 0


@pytest.mark.parametrize(("caller", "card"), [("loud", "default"), ("auto", "loud")])
def test_an_unknown_preset_is_refused_with_those_there_are(caller: str, card: str) -> None:
    with pytest.raises(UnknownPreset, match=r"preset 'loud'; known: auto, default, .*vall_e"):
        resolve(SamplingParams(preset=caller), card)


def test_a_preset_of_the_operator_is_chosen_by_name_and_resolves_again() -> None:
    presets = {**PRESETS, "loud": {"top_k": 9, "temperature": 0.7}}
    resolved = resolve(SamplingParams(preset="loud", top_k=3), presets=presets)
    assert (resolved.preset, resolved.top_k, resolved.temperature) == ("loud", 3, 0.7)
    assert resolve(resolved, presets=presets) == resolved


def test_resolving_draws_a_missing_seed_once_and_keeps_a_given_one() -> None:
    seeds = {resolve(SamplingParams()).seed for _ in range(20)}
    assert None not in seeds
    assert len(seeds) > 15
    assert resolve(SamplingParams(seed=5)).seed == 5


def test_resolved_params_resolve_to_themselves() -> None:
    for name in PRESETS:
        resolved = resolve(SamplingParams(preset=name))
        assert resolve(resolved) == resolved
        assert resolve(SamplingParams.model_validate(resolved.model_dump(mode="json"))) == resolved


def test_a_request_that_is_more_than_params_resolves_to_plain_params() -> None:
    class Request(SamplingParams):
        text: str

    resolved = resolve(Request(text="hello", top_k=4))
    assert type(resolved) is SamplingParams
    assert resolved.top_k == 4


def test_an_off_value_is_a_legal_value() -> None:
    for knob, field in KNOBS.items():
        extra = field.json_schema_extra
        if isinstance(extra, dict) and "off" in extra["x-ui"]:  # type: ignore[operator]
            SamplingParams.model_validate({knob: off_value(knob)})

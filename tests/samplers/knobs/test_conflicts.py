"""Conflicts: refused when the caller set both, settled when a preset set one."""

from typing import Any

import pytest

from samplers.knobs.features import FEATURES
from samplers.knobs.params import SamplingParams, off_value
from samplers.knobs.resolve import CONFLICTS, ConflictError, resolve, settle
from samplers.knobs.steps import ORDERS


@pytest.mark.parametrize(
    ("knobs", "fields"),
    [
        ({"mirostat_mode": 2, "top_k": 5}, {"mirostat_mode", "top_k"}),
        ({"mirostat_mode": 1, "top_p": 0.5}, {"mirostat_mode", "top_p"}),
        ({"mirostat_mode": 2, "xtc_probability": 0.5}, {"mirostat_mode", "xtc_probability"}),
        ({"mirostat_mode": 2, "ras": True}, {"mirostat_mode", "ras"}),
        ({"temperature": 0, "ras": True}, {"temperature", "ras"}),
        ({"entropix": True, "temperature": 0}, {"entropix", "temperature"}),
        ({"entropix": True, "min_temperature": 0.5}, {"entropix", "min_temperature"}),
        ({"entropix": True, "mirostat_mode": 2}, {"entropix", "mirostat_mode"}),
        ({"entropix": True, "ras": True}, {"entropix", "ras"}),
        (
            {"entropix": True, "sampler_order": ["temperature", "top_k", "top_p"]},
            {"entropix", "sampler_order"},
        ),
        *(
            ({"beam_width": 2} | other, {"beam_width", *other})
            for other in (
                {"mirostat_mode": 2}, {"xtc_probability": 0.5}, {"ras": True}, {"entropix": True},
                {"temperature": 0.0}, {"best_of": 2}, {"backtrack": True},
            )
        ),
        ({"best_of": 2, "temperature": 0.0}, {"best_of", "temperature"}),
        (
            {"entropix": True, "entropix_action": "branch", "best_of": 2},
            {"entropix_action", "best_of"},
        ),
        (
            {"entropix": True, "entropix_action": "branch", "backtrack": True},
            {"entropix_action", "backtrack"},
        ),
        ({"temperature": 0, "min_temperature": 0.5}, {"temperature", "min_temperature"}),
        ({"sampler_order": "hf", "dry_multiplier": 1}, {"sampler_order", "dry_multiplier"}),
        ({"sampler_order": ["top_k"], "temperature": 0.5}, {"sampler_order", "temperature"}),
        (
            {"sampler_order": ["top_k"], "temperature_last": True},
            {"sampler_order", "temperature_last"},
        ),
    ],
)  # fmt: skip
def test_two_set_knobs_that_clash_are_refused_by_name(
    knobs: dict[str, Any], fields: set[str]
) -> None:
    with pytest.raises(ConflictError) as caught:
        resolve(SamplingParams(**knobs))
    assert set(caught.value.fields) == fields
    assert all(field in str(caught.value) for field in fields)


def test_a_knob_set_to_its_off_value_clashes_with_nothing() -> None:
    resolved = resolve(SamplingParams(mirostat_mode=2, top_k=0, top_p=1.0, ras=False))
    assert resolved.mirostat_mode == 2


def test_a_set_knob_switches_off_what_clashes_with_it_in_the_preset() -> None:
    resolved = resolve(SamplingParams(preset="llama_cpp", mirostat_mode=2))
    assert (resolved.top_k, resolved.top_p, resolved.min_p) == (0, 1.0, 0.0)
    assert resolved.temperature == 0.8
    resolved = resolve(SamplingParams(top_k=5), {"mirostat_mode": 2, "mirostat_tau": 4.0})
    assert (resolved.mirostat_mode, resolved.top_k) == (0, 5)


def test_what_is_tried_in_several_ways_switches_off_what_clashes_with_it_in_the_preset() -> None:
    searched = resolve(SamplingParams(preset="stable", beam_width=3))
    assert (searched.backtrack, searched.top_p) == (False, 0.9)
    assert resolve(SamplingParams(preset="stable", best_of=3)).backtrack
    assert resolve(SamplingParams(preset="greedy", best_of=3)).temperature == 1.0
    branching = {"entropix": True, "entropix_action": "branch"}
    assert resolve(SamplingParams(backtrack=True), branching).entropix_action == "temperature"
    assert resolve(SamplingParams(entropix_action="branch", backtrack=True)).backtrack


def test_entropix_goes_with_every_order_that_has_a_name() -> None:
    for order in ORDERS:
        assert resolve(SamplingParams(entropix=True, sampler_order=order)).entropix


def test_a_set_knob_that_the_order_of_a_preset_leaves_out_brings_back_the_canonical_order() -> None:
    resolved = resolve(SamplingParams(xtc_probability=0.5), {"sampler_order": "hf"})
    assert resolved.sampler_order == "canonical"


def test_the_temperature_may_move_upwards_where_the_model_is_sure() -> None:
    resolved = resolve(SamplingParams(min_temperature=1.5), {"temperature": 0.8})
    assert (resolved.min_temperature, resolved.temperature) == (1.5, 0.8)


def test_a_conflict_inside_a_card_is_an_error() -> None:
    with pytest.raises(ConflictError):
        resolve(SamplingParams(), {"mirostat_mode": 2, "top_k": 5})


def test_every_conflict_is_between_knobs_that_can_be_switched_off() -> None:
    for conflict in CONFLICTS:
        for knob in conflict.knobs:
            SamplingParams.model_validate({knob: off_value(knob)})
        assert conflict.reason


def test_the_defaults_contradict_nothing() -> None:
    assert settle(SamplingParams(), chosen=SamplingParams.model_fields) == ()


def test_every_truncation_filter_of_the_order_contradicts_mirostat() -> None:
    filters = {name for name, one in FEATURES.items() if one.step and one.group == "truncation"}
    assert {"top_k", "top_p", "min_p"} <= filters
    clashing = {conflict.knobs[1] for conflict in CONFLICTS if conflict.knobs[0] == "mirostat_mode"}
    assert filters <= clashing

"""Features: on unless the knob is at its off value, and never for a greedy row if random; rows."""

from typing import Any

import pytest

from samplers.knobs.features import (
    FEATURES,
    is_guided,
    is_on,
    knob_at_fault,
    rewindable,
    rows_needed,
)
from samplers.knobs.params import SamplingParams, hints, off_value
from samplers.knobs.steps import STEPS


def test_every_knob_with_an_off_value_is_a_feature_that_is_off_there() -> None:
    names = [name for name in SamplingParams.model_fields if "off" in hints(name)]
    assert names
    assert set(names) <= set(FEATURES)
    for name in names:
        assert not is_on(name, SamplingParams.model_validate({name: off_value(name)})), name


def test_every_step_of_the_order_is_switched_by_a_feature() -> None:
    assert {one.step for one in FEATURES.values()} - {None} == set(STEPS)
    assert not any(one.step and is_on(name, SamplingParams()) for name, one in FEATURES.items())


@pytest.mark.parametrize(
    ("feature", "knobs"),
    [
        ("xtc_probability", {"xtc_probability": 0.5}),
        ("min_temperature", {"min_temperature": 0.5}),
        ("mirostat_mode", {"mirostat_mode": 2}),
        ("ras", {"ras": True}),
        ("entropix", {"entropix": True}),
        ("branch", {"entropix": True, "entropix_action": "branch"}),
        ("pause", {"entropix": True, "entropix_action": "pause"}),
    ],
)
def test_a_random_feature_has_no_effect_on_a_greedy_row(feature: str, knobs) -> None:
    assert is_on(feature, SamplingParams(**knobs))
    assert not is_on(feature, SamplingParams(**knobs, temperature=0.0))


def test_a_feature_of_two_knobs_needs_both() -> None:
    assert not is_on("xtc_probability", SamplingParams(xtc_probability=0.5, xtc_threshold=0.6))
    assert not is_on("mirostat_mode", SamplingParams(mirostat_mode=2, mirostat_tau=0.0))
    assert not is_on("branch", SamplingParams(entropix_action="branch"))


def test_each_stage_is_guided_by_a_knob_of_its_own() -> None:
    assert not is_guided(SamplingParams())
    assert is_guided(SamplingParams(cfg_strength=1.1))
    assert not is_guided(SamplingParams(cfg_strength=1.1), "nar")
    assert is_guided(SamplingParams(nar_cfg_strength=1.1), "nar")
    assert is_guided(SamplingParams(), "masked")
    assert not is_guided(SamplingParams(nar_len_cfg_strength=1.0), "masked")


@pytest.mark.parametrize(("frames", "most"), [(0, 0), (20, 7), (150, 52), (300, 75)])
def test_no_more_is_rewound_than_the_share_and_the_window(frames: int, most: int) -> None:
    assert rewindable(SamplingParams(backtrack_share=0.35), frames) == most
    assert rewindable(SamplingParams(), frames) == min(frames, 75)


@pytest.mark.parametrize(
    ("knobs", "rows"),
    [
        ({}, 1),
        ({"cfg_strength": 2.0}, 1),
        ({"cfg_strength": 2.01}, 2),
        ({"cfg_strength": 2.0, "cfg_rescale": 0.1}, 2),
        ({"cfg_strength": 2.0, "best_of": 2}, 2),
    ],
)
def test_what_a_model_predicts_takes_no_row(knobs: dict[str, Any], rows: int) -> None:
    assert rows_needed(SamplingParams(**{"cfg_rescale": 0.0} | knobs), 2.0) == rows


BRANCH = {"entropix": True, "entropix_action": "branch", "entropix_branch_rollouts": 5}
CASES: list[tuple[dict[str, Any], int, str]] = [
    ({}, 1, "cfg_strength"),
    ({"cfg_strength": 1.5}, 2, "cfg_strength"),
    ({"best_of": 3}, 3, "best_of"),
    ({"best_of": 3, "cfg_strength": 1.5}, 6, "best_of"),
    ({"beam_width": 1}, 1, "cfg_strength"),
    ({"beam_width": 4, "cfg_strength": 1.5}, 8, "beam_width"),
    (BRANCH, 5, "entropix_branch_rollouts"),
    (BRANCH | {"cfg_strength": 1.5}, 10, "entropix_branch_rollouts"),
    (BRANCH | {"entropix_action": "resample"}, 1, "cfg_strength"),
    (BRANCH | {"entropix": False}, 1, "cfg_strength"),
]


@pytest.mark.parametrize(("knobs", "rows", "knob"), CASES)
def test_an_utterance_needs_the_rows_that_its_knobs_ask_for(
    knobs: dict[str, Any], rows: int, knob: str
) -> None:
    params = SamplingParams(**knobs)
    assert (rows_needed(params, 1.0), knob_at_fault(params)) == (rows, knob)

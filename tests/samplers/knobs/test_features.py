"""Features: on unless the knob is at its off value, and never for a greedy row if random."""

import pytest

from samplers.knobs.features import FEATURES, is_guided, is_on, rewindable
from samplers.knobs.order import STEPS
from samplers.knobs.params import SamplingParams, hints, off_value


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

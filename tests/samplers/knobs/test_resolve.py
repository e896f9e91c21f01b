"""Resolving: what the caller set over the preset over the declaration."""

import pytest

from samplers.knobs.params import SamplingParams
from samplers.knobs.presets import PRESETS
from samplers.knobs.resolve import UnknownPreset, resolve

KNOBS = SamplingParams.model_fields


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

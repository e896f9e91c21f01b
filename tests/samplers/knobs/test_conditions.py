"""A set of values as a test and as a JSON schema: the same values."""

import re
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema_rs import Draft202012Validator
from pydantic import ValidationError

from samplers.knobs.conditions import (
    Condition,
    above,
    at_least,
    at_most,
    codes_up_to,
    lacking,
    numbers_up_to,
    one_of,
    other_than,
)
from samplers.knobs.features import FEATURES
from samplers.knobs.params import SamplingParams
from samplers.knobs.resolve import CONFLICTS, ConflictError, contradictions, resolve
from samplers.knobs.steps import ORDERS

NUMBERS = st.floats(-3, 3) | st.integers(-3, 3)
LISTED = st.lists(st.sampled_from(["top_k", "dry", "xtc"]), max_size=3)
NAMED = {"long": ("top_k", "dry", "xtc"), "short": ("top_k",)}
SETS: dict[str, tuple[Condition, st.SearchStrategy[Any]]] = {
    "above": (above(1), NUMBERS),
    "at least": (at_least(0), NUMBERS),
    "at most": (at_most(0.5), NUMBERS),
    "another": (other_than(1.0), NUMBERS),
    "another list": (other_than([]), st.lists(NUMBERS, max_size=2)),
    "some": (one_of("a", "b"), st.sampled_from("abc")),
    "lacking": (lacking("dry", NAMED), LISTED | st.sampled_from(sorted(NAMED))),
    "lacking in no name": (lacking("top_k", NAMED), LISTED | st.sampled_from(sorted(NAMED))),
    "codes": (codes_up_to(12), st.lists(st.integers(-2, 14), max_size=3)),
}


@pytest.mark.parametrize("name", SETS)
@given(st.data())
def test_the_schema_has_the_values_that_the_test_has(name: str, data: st.DataObject) -> None:
    condition, values = SETS[name]
    value = data.draw(values)
    taken = tuple(value) if isinstance(value, list) else value
    assert Draft202012Validator(dict(condition.schema)).is_valid(value) == condition.holds(taken)


@pytest.mark.parametrize("last", [0, 1, 9, 10, 19, 100, 1024, 1999, 4096])
def test_a_pattern_has_the_numbers_up_to_the_last(last: int) -> None:
    pattern = re.compile(numbers_up_to(last))
    assert all(pattern.search(str(number)) for number in range(last + 1))
    assert not any(pattern.search(str(number)) for number in range(last + 1, 3 * last + 20))
    assert not any(pattern.search(sent) for sent in ("", "-1", "01", "+1", " 1", "1.0", "a"))


KNOBS = sorted({knob for one in CONFLICTS for knob in one.when})
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "sampler_order": st.sampled_from(sorted(ORDERS))
    | st.lists(st.sampled_from(ORDERS["canonical"]), unique=True),
    "entropix_action": st.sampled_from(["temperature", "branch", "pause"]),
    "mirostat_mode": st.integers(0, 2),
    "beam_width": st.integers(0, 2),
    "best_of": st.integers(1, 2),
    "no_repeat_ngram_size": st.integers(0, 2),
    "top_k": st.integers(-1, 2),
    "xtc_threshold": st.sampled_from([0.1, 0.5, 0.6]),
    "typical_p": st.sampled_from([0.5, 1.0]),
}


def values_of(knob: str) -> st.SearchStrategy[Any]:
    default = SamplingParams.model_fields[knob].default
    if knob in VALUES:
        return VALUES[knob]
    return st.booleans() if isinstance(default, bool) else st.sampled_from([0.0, 0.5, 1.0])


def valid(knob: str, value: Any) -> bool:
    try:
        SamplingParams.model_validate({knob: value})
    except ValidationError:
        return False
    return True


def taken(knobs: dict[str, Any]) -> bool:
    try:
        resolve(SamplingParams.model_validate(knobs))
    except ConflictError:
        return False
    return True


@given(st.data(), st.lists(st.sampled_from(KNOBS), unique=True, max_size=6))
def test_what_the_schema_excludes_is_what_the_resolver_refuses(
    data: st.DataObject, knobs: list[str]
) -> None:
    sent = {knob: data.draw(values_of(knob).filter(partial(valid, knob))) for knob in knobs}
    excluded = {"not": {"anyOf": contradictions()}}
    given_as_json = {
        knob: list(value) if isinstance(value, tuple) else value for knob, value in sent.items()
    }
    assert Draft202012Validator(excluded).is_valid(given_as_json) == taken(sent)


def test_every_feature_tells_by_which_knobs_it_is_on() -> None:
    assert all(one.knob in one.when for one in FEATURES.values())

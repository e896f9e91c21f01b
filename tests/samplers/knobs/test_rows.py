"""Rows are counted from the knobs, and the knob that asks for most is named."""

from typing import Any

import pytest

from samplers.knobs.features import knob_at_fault, rows_needed
from samplers.knobs.params import SamplingParams

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
    assert (rows_needed(params), knob_at_fault(params)) == (rows, knob)

"""Rows are counted as the batch takes them, and the knob that asks for most is named."""

from typing import Any

import pytest
import torch

from app.engine.utterance import UtteranceInput
from models.checkpoints import load_speech_model
from samplers.knobs.params import SamplingParams
from samplers.knobs.rows import knob_at_fault, rows_needed
from tests.app.engine.level_0.batches import batch_of

BRANCH = {"entropix": True, "entropix_action": "branch", "entropix_branch_rollouts": 5}


@pytest.mark.parametrize(
    ("knobs", "rows", "knob"),
    [
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
    ],
)
def test_a_piece_takes_the_rows_that_it_states(
    toy, knobs: dict[str, Any], rows: int, knob: str
) -> None:
    params = SamplingParams(**knobs)
    assert (rows_needed(params), knob_at_fault(params)) == (rows, knob)
    batch = batch_of(load_speech_model(toy, torch.device("cpu")).model, slots=10)
    one = UtteranceInput([1, 10, 2], params, 1, 0, 5)
    batch.admit(one)
    assert batch.free_rows == 10 - rows

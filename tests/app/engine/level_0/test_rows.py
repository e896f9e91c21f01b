"""The batch takes as many rows for an utterance as its knobs state."""

from typing import Any

import pytest
import torch

from app.engine.utterance import UtteranceInput
from models.checkpoints import load_speech_model
from samplers.knobs.params import SamplingParams
from tests.app.engine.level_0.batches import batch_of
from tests.samplers.knobs.test_rows import CASES


@pytest.mark.parametrize(("knobs", "rows"), [case[:2] for case in CASES])
def test_an_utterance_takes_the_rows_that_its_knobs_ask_for(
    toy, knobs: dict[str, Any], rows: int
) -> None:
    batch = batch_of(load_speech_model(toy, torch.device("cpu")).model, slots=10)
    one = UtteranceInput([1, 10, 2], SamplingParams(**knobs), 1, 0, 5)
    batch.admit(one)
    assert batch.free_rows == 10 - rows

"""The toy's level 0, as if its card named an alignment head."""

from copy import deepcopy
from pathlib import Path

import pytest
import torch

from models.checkpoints import load_speech_model
from models.config import AlignmentHead
from models.int8.quantized import quantize_linears
from models.valle import Valle


@pytest.fixture(scope="module")
def float_model(toy: Path) -> Valle:
    model = load_speech_model(toy, torch.device("cpu")).model
    head = AlignmentHead(layer=1, head=1)
    model.config = model.config.model_copy(update={"alignment": head, "max_prompt_frames": 70})
    return model


@pytest.fixture(scope="module", params=["float32", "int8"])
def model(float_model: Valle, request: pytest.FixtureRequest) -> Valle:
    model = deepcopy(float_model)
    if request.param == "int8":
        quantize_linears(model)
    return model

"""The toy's level 0."""

import pytest
import torch

from models.checkpoints import load_speech_model
from models.int8.quantized import quantize_linears
from models.valle import Valle


@pytest.fixture(scope="module")
def float_model(toy) -> Valle:
    return load_speech_model(toy, torch.device("cpu")).model


@pytest.fixture(scope="module", params=["float32", "int8"])
def model(toy, request: pytest.FixtureRequest) -> Valle:
    model = load_speech_model(toy, torch.device("cpu")).model
    if request.param == "int8":
        quantize_linears(model)
    return model

"""The toy's level 0, as if its card named an alignment head."""

from copy import deepcopy

import pytest

from models.checkpoints.sources import SpeechModel
from models.config import AlignmentHead
from models.int8.quantized import quantize_linears
from models.valle import Valle


@pytest.fixture(scope="module")
def float_model(speech: SpeechModel) -> Valle:
    model, head = deepcopy(speech.model), AlignmentHead(layer=1, head=1)
    model.config = model.config.model_copy(update={"alignment": head, "max_prompt_frames": 70})
    return model


@pytest.fixture(scope="module", params=["float32", "int8"])
def model(float_model: Valle, request: pytest.FixtureRequest) -> Valle:
    model = deepcopy(float_model)
    if request.param == "int8":
        quantize_linears(model)
    return model

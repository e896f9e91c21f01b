"""The toy, whose sound is made."""

from pathlib import Path

import pytest
import torch

from models.checkpoints import SpeechModel, load_speech_model
from tests.capture.tape import Tape


@pytest.fixture(scope="module")
def speech(toy: Path) -> SpeechModel:
    return load_speech_model(toy, torch.device("cpu"))


@pytest.fixture(scope="module")
def tape() -> Tape:
    return Tape()

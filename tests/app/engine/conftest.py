"""The toy, with its codec."""

from pathlib import Path

import pytest
import torch

from models.checkpoints import SpeechModel, load_speech_model


@pytest.fixture(scope="module")
def speech(toy: Path) -> SpeechModel:
    return load_speech_model(toy, torch.device("cpu"))

"""The toy, with its codec."""

from pathlib import Path

import pytest
import torch

from models.checkpoints.sources import SpeechModel, open_speech_model


@pytest.fixture(scope="module")
def speech(toy: Path) -> SpeechModel:
    return open_speech_model(toy, torch.device("cpu"))

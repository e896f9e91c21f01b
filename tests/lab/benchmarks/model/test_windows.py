"""What the benchmark of windows compares, on the toy model."""

from pathlib import Path

import pytest
import torch

from lab.benchmarks.model import windows
from models.checkpoints.sources import open_speech_model
from tests.toy.make_toy import MODEL, make


@pytest.mark.slow
def test_windows_that_see_less_than_the_whole_differ_from_it_and_are_heard_sooner(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(windows, "SHAPES", ((10**6, 0, 0), (15, 1000, 1000), (15, 5, 0)))
    full = MODEL.model_copy(update={"nar_mask": "full", "max_prompt_frames": 0})
    speech = open_speech_model(make(tmp_path / "toy", config=full), torch.device("cpu"))
    *whole, less = windows.measure(speech, ["Hello there.", "One two three."])
    for row in whole:
        assert (row.equal_level_1, row.equal, row.spectrum_db) == (1.0, 1.0, 0.0)
        assert (row.jump, row.worst_jump) == (row.jump_of_whole, row.worst_jump_of_whole)
    assert whole[0].work == 1.0
    assert less.equal < 1.0
    assert less.spectrum_db > 0.0
    assert less.heard_after_s == 0.2 < whole[0].heard_after_s

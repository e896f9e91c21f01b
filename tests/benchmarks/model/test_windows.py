"""What the benchmark of windows compares, on the toy model."""

from pathlib import Path

import pytest
import torch

from benchmarks.model import windows
from models.checkpoints import load_speech_model
from tests.toy.make_toy import MODEL, make

SENTENCES = ["Hello there.", "One two three."]


@pytest.fixture
def rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[windows.WindowResult]:
    monkeypatch.setattr(windows, "SHAPES", ((10**6, 0, 0), (15, 1000, 1000), (15, 5, 0)))
    full = MODEL.model_copy(update={"nar_mask": "full", "max_prompt_frames": 0})
    speech = load_speech_model(make(tmp_path / "toy", config=full), torch.device("cpu"))
    return windows.measure(speech, SENTENCES)


def test_what_is_the_whole_does_not_differ_from_it(rows: list[windows.WindowResult]) -> None:
    for row in rows[:2]:
        assert (row.equal_level_1, row.equal, row.spectrum_db) == (1.0, 1.0, 0.0)
        assert (row.jump, row.worst_jump) == (row.jump_of_whole, row.worst_jump_of_whole)
    assert rows[0].work == 1.0


def test_windows_that_see_less_differ_and_are_heard_sooner(
    rows: list[windows.WindowResult],
) -> None:
    assert rows[2].equal < 1.0
    assert rows[2].spectrum_db > 0.0
    assert rows[2].heard_after_s == 0.2 < rows[0].heard_after_s

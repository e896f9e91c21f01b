import json
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("matplotlib")

from training.plots import draw_attention, draw_losses, read_log, sharpest_head


def test_losses_are_drawn_from_a_log_whose_last_line_is_cut_off(tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    row = {"step": 1, "split": "val", "level": 0, "loss": 2.0, "accuracy": 0.1}
    log.write_text(json.dumps(row) + '\n{"step": 3, "le')
    assert [axes.get_title() for axes in draw_losses(read_log(log)).axes][1] == "accuracy"
    codec = [{"step": 9, "mel": 1.0, "frames_per_s": 800.0}, {"step": 10, "mel": 1.0, "judge": 0.0}]
    assert [axes.get_title() for axes in draw_losses(codec).axes] == ["mel", "judge"]
    log.write_text("")
    with pytest.raises(ValueError, match="no row"):
        read_log(log)


def test_the_sharpest_head_is_the_one_that_walks_along_the_text() -> None:
    weights = np.full((2, 2, 10, 5), 0.2, np.float32)
    weights[1, 0] = np.eye(5, dtype=np.float32).repeat(2, axis=0)
    weights[0, 1] = np.eye(5, dtype=np.float32)[[4] * 10]  # sharp, but always at the last
    assert sharpest_head(weights) == (1, 0)
    assert len(draw_attention(weights, list("abcde")).subfigs[1].axes) == 4

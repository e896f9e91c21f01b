from pathlib import Path

import numpy as np
import pytest
import torch

from training.codec.clips import LOUDNESS, Clips
from training.speech.corpus import Corpus, write_shard

LENGTH = 480


@pytest.fixture
def corpora(tmp_path: Path) -> list[tuple[Corpus, float]]:
    """Two corpora of constant samples; those of held-out shards are 4/5 as loud."""
    made = []
    for name, level, share in (("speech", 0.5, 0.75), ("kokoro", -0.25, 0.25)):
        (tmp_path / name).mkdir()
        for number in range(4):
            samples = np.full(4800, level * (0.8 if number >= 2 else 1), np.float32)
            write_shard(tmp_path / name, number, [(samples, {"text": "x"})])
        made.append((Corpus(tmp_path, name), share))
    return made


@pytest.mark.parametrize("held_out", [False, True])
def test_corpora_give_their_shares_of_clips_of_the_right_shards_alone(corpora, held_out):
    clips = Clips(corpora, LENGTH, held_out=held_out).draw(2000, np.random.default_rng(0))
    assert clips.shape == (2000, LENGTH)
    speech = clips[:, 0] > 0
    assert speech.float().mean() == pytest.approx(0.75, abs=0.05)  # five standard deviations
    least = float((clips[:, 0].abs() / torch.where(speech, 0.5, 0.25)).min())
    assert (least < LOUDNESS[0] * 0.82) == held_out
    assert held_out or least > LOUDNESS[0] - 1e-3

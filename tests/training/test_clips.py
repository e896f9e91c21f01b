from pathlib import Path

import numpy as np
import pytest
import torch

from training.clips import LOUDNESS, Clips
from training.data import Corpus, write_shard

LENGTH = 480


@pytest.fixture
def corpora(tmp_path: Path) -> list[tuple[Corpus, float]]:
    """Two corpora of constant samples: what a clip came from can be seen by its sign and size."""
    made = []
    for name, level, share in (("speech", 0.5, 0.75), ("kokoro", -0.25, 0.25)):
        folder = tmp_path / name
        folder.mkdir()
        for number in range(4):
            held_out = number >= 2
            samples = np.full(4800, 4 * level / 5 if held_out else level, np.float32)
            write_shard(folder, number, [(samples, {"text": "x"})])
        made.append((Corpus(tmp_path, name), share))
    return made


def sources(clips: torch.Tensor) -> torch.Tensor:
    return clips[:, 0, 0] > 0


def test_clips_have_the_length_asked_for_and_one_channel(corpora):
    assert Clips(corpora, LENGTH, 0).draw(5).shape == (5, 1, LENGTH)


def test_corpora_give_the_shares_they_are_given(corpora):
    share = sources(Clips(corpora, LENGTH, 0).draw(2000)).float().mean()
    assert share == pytest.approx(0.75, abs=0.05)  # five standard deviations


def test_held_out_shards_are_never_drawn(corpora):
    """Their level is 4/5 of the others', so a clip of them would be out of the others' range."""
    clips = Clips(corpora, LENGTH, 0).draw(2000)[:, 0]
    ratio = clips.abs()[:, 0] / torch.where(sources(clips[:, None]), 0.5, 0.25)
    assert ratio.min() >= LOUDNESS[0] - 1e-3


def test_the_same_seed_draws_the_same_clips(corpora):
    first, second = (Clips(corpora, LENGTH, 3).draw(8) for _ in range(2))
    assert torch.equal(first, second)
    assert not torch.equal(first, Clips(corpora, LENGTH, 4).draw(8))

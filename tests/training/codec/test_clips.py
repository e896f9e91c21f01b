from pathlib import Path

import numpy as np
import pytest
import torch

from training.codec.clips import LOUDNESS, Clips
from training.speech.corpus import Corpus, write_shard

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


@pytest.fixture
def random() -> np.random.Generator:
    return np.random.default_rng(0)


def sources(clips: torch.Tensor) -> torch.Tensor:
    return clips[:, 0] > 0


def test_clips_have_the_length_asked_for(corpora, random):
    assert Clips(corpora, LENGTH).draw(5, random).shape == (5, LENGTH)


def test_corpora_give_the_shares_they_are_given(corpora, random):
    share = sources(Clips(corpora, LENGTH).draw(2000, random)).float().mean()
    assert share == pytest.approx(0.75, abs=0.05)  # five standard deviations


def test_held_out_shards_are_never_drawn_for_training(corpora, random):
    """Their level is 4/5 of the others', so a clip of them would be out of the others' range."""
    assert level_share(Clips(corpora, LENGTH).draw(2000, random)) > LOUDNESS[0] - 1e-3


def test_held_out_clips_are_of_held_out_shards_alone(corpora, random):
    clips = Clips(corpora, LENGTH, held_out=True).draw(2000, random)
    assert level_share(clips) < LOUDNESS[0] * 0.82


def level_share(clips: torch.Tensor) -> float:
    """Return the least level, relative to that of training's shards."""
    return float((clips[:, 0].abs() / torch.where(sources(clips), 0.5, 0.25)).min())


def test_the_same_seed_draws_the_same_clips(corpora):
    clips = Clips(corpora, LENGTH)
    first, second, other = (clips.draw(8, np.random.default_rng(seed)) for seed in (3, 3, 4))
    assert torch.equal(first, second)
    assert not torch.equal(first, other)

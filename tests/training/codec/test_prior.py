"""The prior of clean speech is that of the corpora's frames, and lies beside the codec."""

from pathlib import Path

import pytest
import torch

from models.checkpoints import load_codec, save_codec
from models.codecs.spectral import SpectralCodec
from tests.training.lm.test_train import random_codec
from tests.training.synthetic import write_corpus
from training import cache as cache_of_training
from training.codec import prior


def test_what_is_written_is_loaded_with_the_codec(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    following = tmp_path / "next"
    monkeypatch.setenv("VALLE_TRAINING_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("sys.argv", ["prior"])
    for module in (cache_of_training, prior):
        monkeypatch.setattr(module, "NEXT_MODEL", following)
    save_codec(following, random_codec(0))
    for source in ("speech", "crowd"):
        write_corpus(tmp_path / "cache" / source)
    prior.main()
    codec = load_codec(following)
    assert isinstance(codec, SpectralCodec)
    assert codec.prior is not None
    assert codec.prior.mean.shape == (codec.config.bands,)
    assert bool((torch.linalg.eigvalsh(codec.prior.covariance) > -1e-6).all())

"""Training of the codec: it learns, and stopping it costs nothing."""

from pathlib import Path

import numpy as np
import pytest
import torch

from models.config import SpectralCodecConfig
from tests.training.synthetic import write_corpus
from training.codec import train as stage
from training.codec.clips import clips_of
from training.codec.pitch import STEP, UNKNOWN, contour_path, cycles_path
from training.codec.train import CodecTrainer
from training.speech.corpus import Corpus

STEPS = 12
TINY = SpectralCodecConfig(
    width=16, ffn=24, dimension=8, codes=16, bands=20, encoder_layers=1, decoder_layers=1, gain=20
)


@pytest.fixture(autouse=True)
def tiny(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Make a corpus of noise, said to be a high voice of which nobody knows the cycles."""
    monkeypatch.setenv("VALLE_TRAINING_CACHE", str(tmp_path / "cache"))
    write_corpus(tmp_path / "cache" / "speech")
    corpus = Corpus(tmp_path / "cache")
    for number in corpus.shards:
        values = len(corpus.shard_samples(number)) // STEP + 1
        np.save(contour_path(corpus.folder, number), np.full(values, 300, np.float32))
        np.save(cycles_path(corpus.folder, number), np.full(values, UNKNOWN, np.float32))
    for name, value in {
        "CONFIG": TINY, "CLIP_FRAMES": 12, "BATCH": 4, "JUDGED_CLIPS": 2, "OPEN_STEPS": 3,
        "JUDGED_AFTER": 1, "KMEANS_BATCHES": 2, "VALIDATION_CLIPS": 3, "LOG_EVERY": 2,
        "SAVE_EVERY": 100, "VALIDATE_EVERY": 4,
    }.items():  # fmt: skip
        monkeypatch.setattr(stage, name, value)
    monkeypatch.setattr(stage, "fastest_type", lambda _: torch.float32)


def trainer(steps: int = STEPS) -> CodecTrainer:
    length = 11 * TINY.hop + TINY.window
    clips, held_out = (clips_of({"speech": 1.0}, length, held_out=out) for out in (False, True))
    return CodecTrainer(clips, held_out, steps, torch.device("cpu"))


def trained(run: CodecTrainer, steps: int) -> dict[str, torch.Tensor]:
    for _ in range(steps):
        run.train_step()
    return {name: value.clone() for name, value in run.codec.state_dict().items()}


@pytest.mark.parametrize("stop", [4, 8])  # among the quantised and among the settled steps
def test_a_stopped_run_goes_on_as_if_it_had_not_been_stopped(tmp_path: Path, stop: int) -> None:
    whole, stopped, resumed = trainer(), trainer(), trainer()
    whole.run(tmp_path / "log", tmp_path / "whole.pt")
    trained(stopped, stop)
    stopped.save(tmp_path / "stopped.pt")
    resumed.load(tmp_path / "stopped.pt")
    resumed.run(tmp_path / "log", tmp_path / "stopped.pt")
    for name, tensor in whole.codec.state_dict().items():
        assert torch.equal(tensor, resumed.codec.state_dict()[name]), name


def test_it_learns_spectra_and_pitch() -> None:
    run = trainer(steps=200)
    before = run.validate()
    losses = [run.train_step()["pitch"] for _ in range(60)]
    assert np.mean(losses[-10:]) < 0.5 * np.mean(losses[:5])
    assert run.validate()["val_mel"] < 0.85 * before["val_mel"]

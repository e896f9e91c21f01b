"""Training of the codec: it learns, and stopping it costs nothing."""

from pathlib import Path

import pytest
import torch

from models.config import SpectralCodecConfig
from tests.training.synthetic import write_corpus
from training.codec import train as stage
from training.codec.clips import clips_of
from training.codec.train import CodecTrainer
from training.export import averaged_codec

STEPS = 12
TINY = SpectralCodecConfig(
    width=16, ffn=24, dimension=8, codes=16, bands=20, encoder_layers=1, decoder_layers=1, gain=20
)


@pytest.fixture(autouse=True)
def tiny(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("VALLE_TRAINING_CACHE", str(tmp_path / "cache"))
    write_corpus(tmp_path / "cache" / "speech")
    for name, value in {
        "CONFIG": TINY, "CLIP_FRAMES": 12, "BATCH": 4, "JUDGED_CLIPS": 2, "OPEN_STEPS": 3,
        "KMEANS_BATCHES": 2, "VALIDATION_CLIPS": 3, "LOG_EVERY": 2, "SAVE_EVERY": 100,
        "VALIDATE_EVERY": 4,
    }.items():  # fmt: skip
        monkeypatch.setattr(stage, name, value)
    monkeypatch.setattr(stage, "fastest_type", lambda _: torch.float32)


def trainer(steps: int = STEPS) -> CodecTrainer:
    length = 11 * TINY.hop + TINY.window
    clips, held_out = (clips_of({"speech": 1.0}, length, held_out=out) for out in (False, True))
    return CodecTrainer(clips, held_out, steps, torch.device("cpu"))


def test_a_stopped_run_goes_on_as_if_it_had_not_been_stopped(tmp_path: Path) -> None:
    log, whole = tmp_path / "log", trainer()
    whole.run(log, tmp_path / "whole.pt")
    for stop in (4, 8):  # among the quantised and among the settled steps
        stopped, path = trainer(), tmp_path / f"{stop}.pt"
        for _ in range(stop):
            stopped.train_step()
        stopped.save(path)
        resumed = trainer()
        resumed.load(path)
        resumed.run(log, path)
        for name, tensor in whole.codec.state_dict().items():
            assert torch.equal(tensor, resumed.codec.state_dict()[name]), name


def test_encoder_and_codebooks_settle_and_the_decoder_goes_on(tmp_path: Path) -> None:
    run = trainer()
    states = []
    for _ in range(STEPS):
        run.train_step()
        states.append({name: value.clone() for name, value in run.codec.state_dict().items()})
    settled, last = states[run.settled_from - 1], states[-1]
    changed = {name.split(".")[0] for name in last if not torch.equal(settled[name], last[name])}
    assert changed == {"decoder"}


def test_it_learns(tmp_path: Path) -> None:
    run = trainer(steps=200)
    before = run.validate()
    for _ in range(60):
        run.train_step()
    assert run.validate()["val_mel"] < 0.85 * before["val_mel"]


def test_what_is_exported_has_the_averaged_decoder(tmp_path: Path) -> None:
    run = trainer(steps=4)
    run.run(tmp_path / "log", tmp_path / "checkpoint.pt")
    codec = averaged_codec(tmp_path / "checkpoint.pt")
    for name, tensor in codec.decoder.named_parameters():
        assert torch.equal(tensor, run.average[name])
    assert codec.decode(codec.encode(torch.randn(5000) * 0.05)).shape == (16 * 320,)


def test_a_warm_start_begins_where_the_codebooks_have_settled(tmp_path: Path) -> None:
    run = trainer(steps=4)
    run.run(tmp_path / "log", tmp_path / "checkpoint.pt")
    next_run = trainer()
    next_run.warm_start(averaged_codec(tmp_path / "checkpoint.pt"))
    assert next_run.step == next_run.settled_from
    books = next_run.codec.quantizer.codebooks
    assert torch.equal(books, run.codec.quantizer.codebooks)

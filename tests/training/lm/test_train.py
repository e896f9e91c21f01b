"""Training of the language model, from speech to a folder that the service loads."""

from pathlib import Path

import pytest
import torch

from models.checkpoints import load_speech_model, save_codec
from models.codecs.spectral import SpectralCodec
from models.config import SpectralCodecConfig
from tests.training.synthetic import write_corpus
from training import cache as cache_of_training
from training import export
from training.lm import codes
from training.lm import train as lm
from training.lm.train import Trainer

STEPS = 6
CODEC = SpectralCodecConfig(
    width=16, ffn=24, dimension=8, codes=16, bands=20, encoder_layers=1, decoder_layers=1
)
CONFIG = lm.CONFIG.model_copy(
    update={
        "width": 16,
        "layers": 2,
        "heads": 2,
        "kv_heads": 1,
        "ffn": 24,
        "codes": 16,
        "alignment": None,
    }
)


def random_codec(seed: int) -> SpectralCodec:
    torch.manual_seed(seed)
    codec = SpectralCodec(CODEC)
    codec.quantizer.codebooks.normal_()
    return codec


@pytest.fixture(autouse=True)
def coded(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Code a small corpus with a codec that knows nothing; return the folder of what is next."""
    cache, following = tmp_path / "cache", tmp_path / "next"
    monkeypatch.setenv("VALLE_TRAINING_CACHE", str(cache))
    for module in (cache_of_training, codes, export):
        monkeypatch.setattr(module, "NEXT_MODEL", following)
    for name, value in {
        "CONFIG": CONFIG, "POSITIONS": 600, "LOG_EVERY": 2, "SAVE_EVERY": 100,
        "VALIDATION_ROWS": 2, "PROMPT_FRAMES_MIN": 10, "TRANSLATED_UTTERANCES": 6,
    }.items():  # fmt: skip
        monkeypatch.setattr(lm, name, value)
    monkeypatch.setattr(lm, "fastest_type", lambda _: torch.float32)
    for corpus in ("speech", "kokoro"):
        write_corpus(cache / corpus, shards=3)
    code_all(cache, following, random_codec(0))
    return following


def code_all(cache: Path, following: Path, codec: SpectralCodec) -> None:
    save_codec(following, codec)
    folder = codes.codes_folder(cache)
    for source in ("speech", "kokoro"):
        (folder / source).mkdir(parents=True, exist_ok=True)
        for number in range(3):
            codes._code_shard((cache, folder, source, number))


def trainer() -> Trainer:
    return Trainer(STEPS, torch.device("cpu"))


def test_a_stopped_run_goes_on_as_if_it_had_not_been_stopped(tmp_path: Path) -> None:
    whole, stopped = trainer(), trainer()
    whole.run(tmp_path / "log", tmp_path / "whole.pt")
    for _ in range(3):
        stopped.train_step()
    stopped.save(tmp_path / "stopped.pt")
    resumed = trainer()
    resumed.load(tmp_path / "stopped.pt")
    resumed.run(tmp_path / "log", tmp_path / "stopped.pt")
    for name, tensor in whole.average.items():
        assert torch.equal(tensor, resumed.average[name]), name


def test_it_learns(tmp_path: Path) -> None:
    run = trainer()
    before = run.validate()
    run.steps = 40
    run.run(tmp_path / "log", tmp_path / "checkpoint.pt")
    for level, rows in run.validate().items():
        losses = [sum(loss for loss, _ in found) / len(found) for found in (before[level], rows)]
        assert losses[1] < losses[0], level


def test_exported_weights_speak_and_a_warm_start_takes_them_as_they_are_or_translates_them(
    coded: Path, tmp_path: Path
) -> None:
    run = trainer()
    (tmp_path / "cache" / "lm").mkdir()
    run.run(tmp_path / "log", tmp_path / "cache" / "lm" / "checkpoint.pt")
    export.export_lm()
    speech = load_speech_model(coded, torch.device("cpu"))
    assert speech.model.config == CONFIG
    said = speech.model.nar_logits(speech.model.prefix([1, 3, 2], 1), torch.zeros(5, 4).long(), 1)
    assert said.shape == (5, 16)
    following = trainer()
    following.warm_start(coded)
    for name, tensor in run.average.items():
        torch.testing.assert_close(following.average[name], tensor, atol=1e-3, rtol=1e-3)
    # Another codec: the stack stays, the tables belong to other codes.
    old = coded.rename(tmp_path / "old")
    code_all(tmp_path / "cache", coded, random_codec(1))
    other = trainer()
    other.warm_start(old)
    same = {
        name
        for name, tensor in following.average.items()
        if torch.equal(tensor, other.average[name])
    }
    assert {"phonemes.weight", "transformer.blocks.1.attention.qkv.weight"} <= same
    assert not {"response.0.weight", "heads.0.weight"} & same

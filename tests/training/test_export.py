from pathlib import Path

import pytest
import torch

from models.checkpoints import load_codec, load_lm, save_lm
from models.valle import Valle
from tests.training.lm.test_train import CONFIG, random_codec
from training import export
from training.lm import train as lm


@pytest.fixture(autouse=True)
def following(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("VALLE_TRAINING_CACHE", str(tmp_path))
    monkeypatch.setattr(export, "NEXT_MODEL", tmp_path / "next")
    monkeypatch.setattr(lm, "CONFIG", CONFIG)
    monkeypatch.setattr(export, "averaged_codec", lambda _: random_codec(0))
    return tmp_path / "next"


def test_coarse_numbers_have_eight_bits_but_for_what_makes_codes(following: Path) -> None:
    export.export_codec(coarse=True)
    found, whole = load_codec(following).state_dict(), random_codec(0).half().state_dict()
    for name, tensor in found.items():
        coarse = name.startswith("decoder.")
        assert torch.equal(tensor, tensor.bfloat16().float()) or not coarse, name
        assert torch.equal(tensor, whole[name].float()) or coarse, name


@pytest.mark.parametrize("coarse", [False, True])
def test_a_language_model_comes_back_as_it_was_averaged(
    following: Path, tmp_path: Path, coarse: bool
) -> None:
    torch.manual_seed(0)
    average = {name: torch.randn_like(value) for name, value in Valle(CONFIG).state_dict().items()}
    (tmp_path / "lm").mkdir()
    torch.save({"average": average}, tmp_path / "lm" / "checkpoint.pt")
    export.export_lm(coarse=coarse)
    error = 2**-8 if coarse else 2**-11
    for name, tensor in load_lm(following).state_dict().items():
        torch.testing.assert_close(tensor, average[name], rtol=error, atol=1e-6)


def test_half_way_is_the_mean_of_what_was_trained_and_of_where_it_began(
    following: Path, tmp_path: Path
) -> None:
    torch.manual_seed(0)
    average = {name: torch.randn_like(value) for name, value in Valle(CONFIG).state_dict().items()}
    began = {name: torch.randn_like(value) for name, value in average.items()}
    save_lm(tmp_path / "began", CONFIG, began)
    (tmp_path / "lm").mkdir()
    torch.save({"average": average}, tmp_path / "lm" / "checkpoint.pt")
    export.export_lm(half_way_from=tmp_path / "began")
    for name, tensor in load_lm(following).state_dict().items():
        mean = (average[name] + began[name]) / 2
        torch.testing.assert_close(tensor, mean, rtol=2**-10, atol=1e-3)

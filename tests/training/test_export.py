from pathlib import Path

import pytest
import torch

from models.checkpoints import load_lm, save_lm
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
    (tmp_path / "lm").mkdir()
    return tmp_path / "next"


@pytest.mark.parametrize(("coarse", "half_way"), [(False, False), (True, False), (False, True)])
def test_a_language_model_is_its_average_or_the_mean_of_that_and_where_it_began(
    following: Path, tmp_path: Path, coarse: bool, half_way: bool
) -> None:
    torch.manual_seed(0)
    average = {name: torch.randn_like(value) for name, value in Valle(CONFIG).state_dict().items()}
    began = {name: torch.randn_like(value) for name, value in average.items()}
    save_lm(tmp_path / "began", CONFIG, began)
    torch.save({"average": average}, tmp_path / "lm" / "checkpoint.pt")
    export.export_lm(coarse=coarse, half_way_from=tmp_path / "began" if half_way else None)
    for name, tensor in load_lm(following).state_dict().items():
        expected = (average[name] + began[name]) / 2 if half_way else average[name]
        error = 2**-8 if coarse else 2**-10
        torch.testing.assert_close(tensor, expected, rtol=error, atol=1e-3)

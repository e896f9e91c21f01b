"""`valle-serve models download`."""

from pathlib import Path

import pytest
import torch

from app.cli import main
from models.checkpoints.files import write_tensors
from models.checkpoints.hub import PINNED, HubFile
from models.checkpoints.vocos import converted_file
from tests.models.checkpoints.hub_server import COMMIT, serve_hub
from tests.toy.make_public import make_public


@pytest.fixture(autouse=True)
def _cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TTS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))


def test_download_fetches_the_model_and_encodec(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1,localhost")
    encodec = tmp_path / "cache" / "encodec" / "encodec_24khz-d7cc33bc.safetensors"
    encodec.parent.mkdir(parents=True)
    write_tensors(encodec, {"there": torch.zeros(1)})  # nothing is asked of the network for it
    pinned = HubFile("some/model", COMMIT, "ckpt/fp32.sft", licence="AGPL-3.0")
    monkeypatch.setitem(PINNED, "some/model", pinned)
    with serve_hub() as hub:
        hub.add("some/model", "ckpt/fp32.sft", make_public(tmp_path, "ar+nar").read_bytes())
        template = f"{hub.url}/{{repo_id}}/resolve/{{revision}}/{{filename}}"
        monkeypatch.setattr("huggingface_hub.constants.HUGGINGFACE_CO_URL_TEMPLATE", template)
        assert main(["models", "download", "some/model"]) == 0
    path = pinned.local()
    assert capsys.readouterr().out.split() == [str(path), str(encodec)]
    vocos = converted_file(tmp_path / "cache")
    vocos.parent.mkdir(parents=True)
    vocos.touch()  # nor for this
    monkeypatch.setenv("TTS_DECODER", "vocos")
    assert main(["models", "download", "some/model"]) == 0
    assert capsys.readouterr().out.split() == [str(path), str(encodec), str(vocos)]


def test_offline_nothing_is_downloaded(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TTS_OFFLINE", "true")
    assert main(["models", "download"]) == 2
    assert "offline nothing is downloaded" in capsys.readouterr().err

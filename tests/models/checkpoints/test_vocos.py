"""The published Vocos: fetched from a pinned commit, checked, converted once, nothing run."""

import hashlib
import io
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from models.checkpoints.files import CheckpointError
from models.checkpoints.hub import DownloadError, HubFile
from models.checkpoints.vocos import PUBLISHED, load_vocos, vocos_file
from models.codecs.vocos import Vocos
from models.config import VocosConfig
from tests.models.checkpoints.hub_server import COMMIT, Hub
from tests.models.codecs.test_vocos import SMALL

OURS = {"codebooks": "feature_extractor.codebook_weights", "window": "head.istft.window"}
OURS |= {"out.weight": "head.out.weight", "out.bias": "head.out.bias"}


def random_vocos() -> Vocos:
    torch.manual_seed(0)
    vocos = Vocos(SMALL)
    for name, tensor in vocos.state_dict().items():
        if name != "window":
            tensor.normal_()
    return vocos.eval()


def published(vocos: Vocos) -> dict[str, Tensor]:
    """Its tensors under upstream's names, the codebooks as one table."""
    stored = {
        OURS.get(name, f"backbone.{name}"): tensor for name, tensor in vocos.state_dict().items()
    }
    table = OURS["codebooks"]
    return stored | {table: stored[table].flatten(0, 1)}


def offer(hub: Hub, content: Any) -> HubFile:
    out = io.BytesIO()
    torch.save(content, out)
    hub.add(PUBLISHED.repo, PUBLISHED.path, out.getvalue())
    sha256 = hashlib.sha256(out.getvalue()).hexdigest()
    return replace(PUBLISHED, revision=COMMIT, sha256=sha256)


@pytest.fixture(autouse=True)
def _hub_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path_factory.mktemp("hub")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(folder))


def files(folder: Path) -> set[str]:
    return {path.name for path in folder.rglob("*") if path.is_file() and path.suffix != ".lock"}


def test_the_file_is_fetched_and_converted_once(hub: Hub, tmp_path: Path) -> None:
    vocos = random_vocos()
    wanted = offer(hub, published(vocos))
    path = vocos_file(tmp_path, config=SMALL, wanted=wanted, endpoint=hub.url)
    loaded = load_vocos(path, SMALL)
    for name, tensor in vocos.state_dict().items():
        assert torch.equal(loaded.state_dict()[name], tensor), name
    assert files(tmp_path) == {"vocos.safetensors"}
    asked = len(hub.requests)
    assert vocos_file(tmp_path, config=SMALL, wanted=wanted, endpoint=hub.url) == path
    assert vocos_file(tmp_path, config=SMALL, wanted=wanted, offline=True) == path
    assert len(hub.requests) == asked


def test_what_it_names_is_pinned() -> None:
    assert len(PUBLISHED.revision) == 40
    assert len(PUBLISHED.sha256) == 64


def test_another_content_than_the_pinned_is_refused(hub: Hub, tmp_path: Path) -> None:
    wanted = replace(offer(hub, published(random_vocos())), sha256=PUBLISHED.sha256)
    with pytest.raises(DownloadError, match=f"expected {PUBLISHED.sha256}"):
        vocos_file(tmp_path, config=SMALL, wanted=wanted, endpoint=hub.url)
    assert files(tmp_path) == set()


def test_offline_without_a_cache_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DownloadError, match=r"24khz .* offline nothing is downloaded"):
        vocos_file(tmp_path, offline=True)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"backbone.extra": torch.zeros(1)}, "extra is unknown"),
        ({"backbone.embed.weight": torch.zeros(1)}, r"embed.weight has shape \[1\]"),
        ({"feature_extractor.codebook_weights": torch.zeros(3, 4)}, "codebooks has shape"),
        ({"head.out.bias": torch.full((34,), float("nan"))}, "NaN"),
        ({"head.out.bias": 3}, "no mapping of names to tensors"),
    ],
)
def test_what_is_not_vocos_is_refused(
    hub: Hub, tmp_path: Path, change: dict[str, Any], reason: str
) -> None:
    wanted = offer(hub, {**published(random_vocos()), **change})
    with pytest.raises(CheckpointError, match=reason):
        vocos_file(tmp_path, config=SMALL, wanted=wanted, endpoint=hub.url)
    assert "vocos.safetensors" not in files(tmp_path)


def test_a_decoder_of_another_shape_is_refused(hub: Hub, tmp_path: Path) -> None:
    path = vocos_file(
        tmp_path, config=SMALL, wanted=offer(hub, published(random_vocos())), endpoint=hub.url
    )
    with pytest.raises(CheckpointError, match="is missing"):
        load_vocos(path, VocosConfig())

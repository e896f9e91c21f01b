"""Official weights of codecs: fetched, checked, read without running anything, converted once."""

import hashlib
import io
import os
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor, nn

from models.checkpoints.encodec import load_official, official_file
from models.checkpoints.files import CheckpointError
from models.checkpoints.hub import DownloadError
from models.checkpoints.vocos import PUBLISHED, load_vocos, vocos_file
from models.codecs.encodec import Encodec
from models.codecs.vocos import Vocos
from models.config import CodecConfig, VocosConfig
from tests.fixtures import full_disk
from tests.models.checkpoints.hub_server import COMMIT, Hub
from tests.models.codecs.test_vocos import SMALL

CONFIG = CodecConfig(filters=4, dimension=16, codes=64)
OURS = {"codebooks": "feature_extractor.codebook_weights", "window": "head.istft.window"}
OURS |= {"out.weight": "head.out.weight", "out.bias": "head.out.bias"}
Fetch = Callable[..., Path]


def randomised(module: nn.Module) -> nn.Module:
    torch.manual_seed(0)
    for name, tensor in module.state_dict().items():
        if name != "window":
            tensor.normal_()
    return module.eval()


def as_encodec(codec: nn.Module, books: int = 32) -> dict[str, Tensor]:
    """The codec's tensors as upstream stores them: weight norm, 32 codebooks, their averages."""
    stored: dict[str, Tensor] = {}
    for name, tensor in codec.state_dict().items():
        if name == "quantizer.codebooks":
            for level in range(books):
                prefix = f"quantizer.vq.layers.{level}._codebook"
                embed = tensor[level] if level < len(tensor) else torch.zeros_like(tensor[0])
                stored |= {
                    f"{prefix}.embed": embed,
                    f"{prefix}.embed_avg": embed.clone(),
                    f"{prefix}.cluster_size": torch.ones(len(embed)),
                    f"{prefix}.inited": torch.ones(1),
                }
        elif tensor.ndim == 3:
            length = tensor.flatten(1).norm(dim=1).view(-1, 1, 1)
            stored |= {
                f"{name}_g": length,
                f"{name}_v": tensor * torch.rand(len(tensor), 1, 1).add(0.5),
            }
        else:
            stored[name] = tensor
    return stored


def as_vocos(vocos: nn.Module) -> dict[str, Tensor]:
    """Its tensors under upstream's names, the codebooks as one table."""
    stored = {
        OURS.get(name, f"backbone.{name}"): tensor for name, tensor in vocos.state_dict().items()
    }
    table = OURS["codebooks"]
    return stored | {table: stored[table].flatten(0, 1)}


def pickled(content: Any) -> bytes:
    if isinstance(content, bytes):
        return content
    out = io.BytesIO()
    torch.save(content, out)
    return out.getvalue()


def encodec_of(hub: Hub, content: Any, sha256: str = "") -> Fetch:
    """Offer a pickle whose name has its hash; return what fetches it into a cache."""
    data = pickled(content)
    name = f"encodec_24khz-{sha256 or hashlib.sha256(data).hexdigest()[:8]}.th"
    hub.files[f"/v0/{name}"] = data
    url = f"{hub.url}/v0/{name}"
    return partial(official_file, config=CONFIG, url=url)


def vocos_of(hub: Hub, content: Any, sha256: str = "") -> Fetch:
    """Offer a pickle in a repository; return what fetches it into a cache."""
    data = pickled(content)
    hub.add(PUBLISHED.repo, PUBLISHED.path, data)
    sha256 = sha256 or hashlib.sha256(data).hexdigest()
    wanted = replace(PUBLISHED, revision=COMMIT, sha256=sha256)
    return partial(vocos_file, config=SMALL, wanted=wanted, endpoint=hub.url)


class Official(NamedTuple):
    make: Callable[[], nn.Module]
    published: Callable[[nn.Module], dict[str, Tensor]]
    offer: Callable[..., Fetch]
    load: Callable[[Path], nn.Module]
    another_hash: tuple[str, str]  # and what is said of it
    tolerance: float  # weight norm is rounded


ALL = {
    "encodec": Official(
        lambda: Encodec(CONFIG), as_encodec, encodec_of, lambda path: load_official(path, CONFIG),
        ("d7cc33bc", "does not begin with d7cc33bc"), 1e-6,
    ),
    "vocos": Official(
        lambda: Vocos(SMALL), as_vocos, vocos_of, lambda path: load_vocos(path, SMALL),
        (PUBLISHED.sha256, f"expected {PUBLISHED.sha256}"), 0.0,
    ),
}  # fmt: skip


@pytest.fixture(params=ALL)
def official(request: pytest.FixtureRequest) -> Official:
    return ALL[request.param]


@pytest.fixture(autouse=True)
def _hub_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path_factory.mktemp("hub")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(folder))


def files(folder: Path) -> list[str]:
    return [path.suffix for path in folder.rglob("*") if path.is_file() and path.suffix != ".lock"]


def test_it_is_fetched_and_converted_once(official: Official, hub: Hub, tmp_path: Path) -> None:
    module = randomised(official.make())
    fetch = official.offer(hub, official.published(module))
    path = fetch(tmp_path)
    loaded, near = official.load(path).state_dict(), official.tolerance
    for name, tensor in module.state_dict().items():
        torch.testing.assert_close(loaded[name], tensor, rtol=near, atol=near)
    assert files(tmp_path) == [".safetensors"]
    asked = len(hub.requests)
    assert fetch(tmp_path) == fetch(tmp_path, offline=True) == path
    assert len(hub.requests) == asked


def test_another_hash_is_refused(official: Official, hub: Hub, tmp_path: Path) -> None:
    sha256, said = official.another_hash
    content = official.published(randomised(official.make()))
    with pytest.raises(DownloadError, match=said):
        official.offer(hub, content, sha256)(tmp_path)
    assert files(tmp_path) == []


def test_offline_without_a_cache_it_is_refused(
    official: Official, hub: Hub, tmp_path: Path
) -> None:
    with pytest.raises(DownloadError, match="offline nothing is downloaded"):
        official.offer(hub, {})(tmp_path, offline=True)


class Runs:
    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, ("/tmp/valle-serve-was-run",)


NONE = {
    "code": ({"weight": Runs()}, "no pickle of tensors"),
    "text": (b"no pickle at all", "no pickle of tensors"),
    "a list": ([torch.zeros(1)], "no mapping of names"),
    "a number": ({"weight": 1}, "no mapping of names"),
}
MISFITS: list[tuple[dict[str, Any], str]] = [
    ({"backbone.extra": torch.zeros(1)}, "extra is unknown"),
    ({"backbone.embed.weight": torch.zeros(1)}, r"embed.weight has shape \[1\]"),
    ({"feature_extractor.codebook_weights": torch.zeros(3, 4)}, "codebooks has shape"),
    ({"head.out.bias": torch.full((34,), float("nan"))}, "NaN"),
]


@pytest.mark.parametrize("case", NONE)
def test_what_is_no_codec_is_refused_and_never_run(
    official: Official, hub: Hub, tmp_path: Path, case: str
) -> None:
    content, reason = NONE[case]
    with pytest.raises(CheckpointError, match=reason):
        official.offer(hub, content)(tmp_path)
    assert not Path("/tmp/valle-serve-was-run").exists()
    assert ".safetensors" not in files(tmp_path)


@pytest.mark.parametrize(("change", "reason"), MISFITS)
def test_tensors_that_do_not_fit_vocos_are_named(
    hub: Hub, tmp_path: Path, change: dict[str, Any], reason: str
) -> None:
    content = {**as_vocos(randomised(Vocos(SMALL))), **change}
    with pytest.raises(CheckpointError, match=reason):
        vocos_of(hub, content)(tmp_path)
    assert ".safetensors" not in files(tmp_path)


def test_codebooks_that_are_missing_are_counted(hub: Hub, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"codebooks .* found, 8 levels wanted"):
        encodec_of(hub, {"weight": torch.zeros(1)})(tmp_path)


def test_a_codec_of_another_shape_is_refused(hub: Hub, tmp_path: Path) -> None:
    fetch = encodec_of(hub, as_encodec(randomised(Encodec(CONFIG))))
    with pytest.raises(CheckpointError, match="expected"):
        fetch(tmp_path, config=CodecConfig(filters=8, dimension=16, codes=64))
    assert ".safetensors" not in files(tmp_path)
    path = vocos_of(hub, as_vocos(randomised(Vocos(SMALL))))(tmp_path)
    with pytest.raises(CheckpointError, match="is missing"):
        load_vocos(path, VocosConfig())


def test_what_vocos_names_is_pinned_and_encodec_holds_a_hash(tmp_path: Path) -> None:
    assert (len(PUBLISHED.revision), len(PUBLISHED.sha256)) == (40, 64)
    with pytest.raises(CheckpointError, match="holds no hash"):
        official_file(tmp_path, url="http://127.0.0.1:9/encodec.th")


def test_a_disk_that_fills_up_while_converting_leaves_nothing_half(
    hub: Hub, tmp_path: Path
) -> None:
    content = pickled(as_encodec(randomised(Encodec(CONFIG)), books=8))
    fetch = encodec_of(hub, content)
    (name,) = hub.files
    pickle = tmp_path / "encodec" / name.rpartition("/")[2]
    pickle.parent.mkdir()
    pickle.write_bytes(content)
    with full_disk(20_000), pytest.raises(CheckpointError, match="cannot be written"):
        fetch(tmp_path)
    assert files(tmp_path) == [".th"]
    assert load_official(fetch(tmp_path), CONFIG)

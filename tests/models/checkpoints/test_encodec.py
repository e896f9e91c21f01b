"""Official EnCodec weights: fetched, checked, read without running anything, converted once."""

import hashlib
import io
import os
import resource
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from models.checkpoints.encodec import load_official, official_file
from models.checkpoints.files import CheckpointError
from models.checkpoints.hub import DownloadError
from models.codecs.encodec import Encodec
from models.config import CodecConfig
from tests.models.checkpoints.hub_server import Hub
from tests.models.codecs.oracle import random_encodec

CONFIG = CodecConfig(filters=4, dimension=16, codes=64)


def small_codec() -> Encodec:
    torch.manual_seed(0)
    codec = Encodec(CONFIG)
    for tensor in codec.state_dict().values():
        tensor.normal_()
    return codec.eval()


def published(codec: Encodec, books: int = 32) -> dict[str, Tensor]:
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


def pickled(content: Any) -> bytes:
    out = io.BytesIO()
    torch.save(content, out)
    return out.getvalue()


def offer(hub: Hub, content: bytes, name: str = "") -> str:
    name = name or f"encodec_24khz-{hashlib.sha256(content).hexdigest()[:8]}.th"
    hub.files[f"/v0/{name}"] = content
    return f"{hub.url}/v0/{name}"


def files(folder: Path) -> set[str]:
    return {path.suffix for path in folder.rglob("*") if path.is_file() and path.suffix != ".lock"}


def test_the_official_file_is_fetched_and_converted_once(hub: Hub, tmp_path: Path) -> None:
    codec = small_codec()
    url = offer(hub, pickled(published(codec)))
    path = official_file(tmp_path, config=CONFIG, url=url)
    loaded = load_official(path, CONFIG)
    for name, tensor in codec.state_dict().items():
        torch.testing.assert_close(loaded.state_dict()[name], tensor, rtol=1e-6, atol=1e-6)
    assert files(tmp_path) == {".safetensors"}
    asked = len(hub.requests)
    assert official_file(tmp_path, config=CONFIG, url=url) == path
    assert official_file(tmp_path, config=CONFIG, url=url, offline=True) == path
    assert len(hub.requests) == asked


def test_a_file_of_the_official_shape_decodes_as_the_encodec_package(
    hub: Hub, tmp_path: Path
) -> None:
    oracle = random_encodec()
    url = offer(hub, pickled(oracle.state_dict()))
    codec = load_official(official_file(tmp_path, url=url))
    codes = torch.randint(1024, (20, 8))
    with torch.inference_mode():
        expected = oracle.decode([(codes.T[None], None)])[0, 0]
    torch.testing.assert_close(codec.decode(codes), expected, rtol=1e-4, atol=1e-5)


def test_another_hash_than_the_name_holds_is_refused(hub: Hub, tmp_path: Path) -> None:
    url = offer(hub, pickled(published(small_codec())), "encodec_24khz-d7cc33bc.th")
    with pytest.raises(DownloadError, match="does not begin with d7cc33bc"):
        official_file(tmp_path, config=CONFIG, url=url)
    assert files(tmp_path) == set()


def test_a_name_without_a_hash_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="holds no hash"):
        official_file(tmp_path, url="http://127.0.0.1:9/encodec.th")


def test_offline_without_a_cache_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DownloadError, match="offline nothing is downloaded"):
        official_file(tmp_path, offline=True)


class Runs:
    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, ("/tmp/valle-serve-was-run",)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (pickled({"weight": Runs()}), "no pickle of tensors"),
        (b"no pickle at all", "no pickle of tensors"),
        (pickled([torch.zeros(1)]), "no mapping of names"),
        (pickled({"weight": 1}), "no mapping of names"),
        (pickled({"weight": torch.zeros(1)}), "codebooks .* found, 8 levels wanted"),
    ],
)
def test_what_is_not_encodec_is_refused_and_never_run(
    hub: Hub, tmp_path: Path, content: bytes, reason: str
) -> None:
    with pytest.raises(CheckpointError, match=reason):
        official_file(tmp_path, config=CONFIG, url=offer(hub, content))
    assert not Path("/tmp/valle-serve-was-run").exists()
    assert ".safetensors" not in files(tmp_path)


def test_a_codec_of_another_shape_is_refused(hub: Hub, tmp_path: Path) -> None:
    url = offer(hub, pickled(published(small_codec())))
    with pytest.raises(CheckpointError, match="expected"):
        official_file(tmp_path, config=CodecConfig(filters=8, dimension=16, codes=64), url=url)
    assert ".safetensors" not in files(tmp_path)


def test_a_disk_that_fills_up_while_converting_leaves_nothing_half(
    hub: Hub, tmp_path: Path
) -> None:
    content = pickled(published(small_codec(), books=8))
    url = offer(hub, content)
    pickle = tmp_path / "encodec" / url.rpartition("/")[2]
    pickle.parent.mkdir()
    pickle.write_bytes(content)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, hard))
    try:
        with pytest.raises(CheckpointError, match="cannot be written"):
            official_file(tmp_path, config=CONFIG, url=url)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert files(tmp_path) == {".th"}
    assert load_official(official_file(tmp_path, config=CONFIG, url=url), CONFIG)

"""What is refused by name, and what of files is told, kept and compared."""

import json
import logging
import os
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from models.checkpoints.files import CheckpointError, read_file, write_tensors
from models.checkpoints.hub import DownloadError, HubFile, obtain_first
from models.checkpoints.sources import load_published
from models.checkpoints.vallex.load import load_vallex, read_symbols
from models.checkpoints.vallex.pickles import converted
from tests.models.checkpoints.hub_server import COMMIT, Hub
from tests.models.checkpoints.vallex.golden import placed

SOME: dict[str, Any] = {"nhead": 2, "prefix_mode": 1}
WANTED = HubFile("Plachta/VALL-E-X", "main", "vallex-checkpoint.pt")


@pytest.mark.parametrize(
    ("name", "settings", "why"),
    [
        ("lifeiteng/mode1_bos_prenet", SOME, r"add_prenet.*ar_audio_prenet\.0\.bias"),
        ("lifeiteng/mode2_postnorm", SOME, "norm_first is false"),
        ("lifeiteng/mode0", {"nhead": None}, r"nhead and prefix_mode.*settings\.json"),
        ("lifeiteng/mode0", {"prefix_mode": 3}, "prefix_mode"),
        ("lifeiteng/mode0", {"nhead": 3}, "must be heads 3 times"),
    ],
)
def test_what_cannot_be_folded_or_is_not_told_is_refused_by_name(
    golden_vallex: Path, tmp_path: Path, name: str, settings: dict[str, Any], why: str
) -> None:
    with pytest.raises(CheckpointError, match=why):
        load_vallex(placed(golden_vallex, name, tmp_path, **settings))


Change = Callable[[dict[str, Tensor]], object]


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda them: them.pop("nar_decoder.norm.norm.bias"), "norm.norm.bias is missing"),
        (lambda them: them.update({"more": torch.ones(1)}), "more is unknown"),
        (lambda them: them.update({"ar_predict_layer.weight": torch.ones(2, 2)}), "has shape"),
        (
            lambda them: them.update({"ar_decoder.layers.0.multihead_attn.x": torch.ones(1)}),
            "VALL-F",
        ),
        (lambda them: them["ar_text_position.alpha"].fill_(torch.nan), "NaN or infinity"),
    ],
)
def test_a_tensor_that_is_wrong_is_named(
    golden_vallex: Path, tmp_path: Path, change: Change, why: str
) -> None:
    file = placed(golden_vallex, "lifeiteng/mode0", tmp_path)
    tensors = {name: one.clone() for name, one in read_file(file)[0].items()}
    change(tensors)
    write_tensors(file, tensors, dtype=None)
    with pytest.raises(CheckpointError, match=why):
        load_vallex(file)


@pytest.mark.parametrize("name", ["tiny-checkpoint", "tiny-checkpoint-with-settings"])
def test_a_pickle_is_converted_once_with_the_tensors_that_it_has(
    golden_vallex: Path, tmp_path: Path, name: str
) -> None:
    source = tmp_path / f"{name}.pt"
    shutil.copy(golden_vallex / "container" / source.name, source)
    (tmp_path / "settings.json").write_text('{"nhead": 2}')
    model, file = load_published(source, tmp_path / "cache")
    told = json.loads((golden_vallex / "container" / "tiny-checkpoint.json").read_text())
    tensors, _ = read_file(file)
    assert {one: list(tensor.shape) for one, tensor in tensors.items()} == told["tensors"]
    assert model.config.nar.layers == 1
    made = file.stat().st_mtime_ns
    assert load_published(source, tmp_path / "cache")[1] == file
    assert file.stat().st_mtime_ns == made


class _Harmful:
    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, ("touch harmed",)


@pytest.mark.parametrize("where", ["model", "else"])
def test_a_pickle_that_asks_for_anything_else_is_refused_and_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    monkeypatch.chdir(tmp_path)
    torch.save({"model": {}, where: _Harmful()}, tmp_path / "one.pt")
    (tmp_path / "two.pt").write_bytes(pickle.dumps(_Harmful(), protocol=2))
    for name in ("one.pt", "two.pt"):
        with pytest.raises(CheckpointError, match="no pickle of tensors"):
            converted(tmp_path / name, tmp_path / "cache")
    assert not (tmp_path / "harmed").exists()


def test_a_converted_file_that_was_changed_is_refused(golden_vallex: Path, tmp_path: Path) -> None:
    source = golden_vallex / "container" / "tiny-checkpoint.pt"
    file = converted(source, tmp_path)
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    with pytest.raises(CheckpointError, match="damaged"):
        converted(source, tmp_path)


def test_commit_and_hash_of_a_first_download_are_told_kept_and_compared(
    hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    hub.add(WANTED.repo, WANTED.path, b"weights")
    hub.files[f"/{WANTED.repo}/resolve/main/{WANTED.path}"] = b"weights"
    kept = tmp_path / "kept.json"
    with pytest.raises(DownloadError, match="never downloaded"):
        obtain_first(WANTED, kept, offline=True, endpoint=hub.url)
    with caplog.at_level(logging.WARNING):
        path = obtain_first(WANTED, kept, endpoint=hub.url)
    seen = json.loads(kept.read_text())
    assert seen["commit"] == COMMIT
    assert seen["commit"] in caplog.text
    assert seen["sha256"] in caplog.text
    assert obtain_first(WANTED, kept, offline=True, endpoint=hub.url) == path
    path.resolve().write_bytes(b"others")
    with pytest.raises(DownloadError, match="SHA-256 is"):
        obtain_first(WANTED, kept, endpoint=hub.url)


def test_a_symbol_table_gives_ids_and_one_that_is_none_is_named(tmp_path: Path) -> None:
    path = tmp_path / "unique_text_tokens.k2symbols"
    assert read_symbols(path) == {}
    path.write_text("<eps> 0\n_ 3\nai 4\n")
    assert read_symbols(path) == {"<eps>": 0, "_": 3, "ai": 4}
    path.write_text("no number\n")
    with pytest.raises(CheckpointError, match="no symbol table"):
        read_symbols(path)

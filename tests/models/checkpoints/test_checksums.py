"""Weights are those that were saved, or they are not loaded."""

import subprocess
from pathlib import Path

import pytest
import torch

from app.settings import BUILTIN_MODEL
from models.checkpoints.builtin import load_lm, save_codec, save_lm
from models.checkpoints.files import SUMS, CheckpointError, sha256_of, write_sums
from models.checkpoints.sources import open_speech_model
from tests.toy.make_toy import make

CPU = torch.device("cpu")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return make(tmp_path / "toy")


def overwrite(path: Path, many: int = 64) -> None:
    """Overwrite the last bytes with such as are numbers still."""
    content = bytearray(path.read_bytes())
    content[-many:] = b"\x11" * many
    path.write_bytes(content)


@pytest.mark.parametrize("name", ["lm-1.safetensors", "codec.safetensors"])
def test_bytes_that_were_overwritten_are_found(folder: Path, name: str) -> None:
    overwrite(folder / name)
    with pytest.raises(CheckpointError, match=f"{name} is damaged, or not the file that was saved"):
        open_speech_model(folder, CPU)


def test_a_file_that_belongs_to_no_other_is_found(folder: Path) -> None:
    (folder / SUMS).write_text("")
    with pytest.raises(CheckpointError, match=f"lm-1.safetensors is not in {SUMS}"):
        load_lm(folder)


def test_a_folder_without_hashes_loads_as_ever(folder: Path) -> None:
    (folder / SUMS).unlink()
    overwrite(folder / "lm-1.safetensors")
    open_speech_model(folder, CPU)


@pytest.mark.parametrize("line", ["rubbish", "00  lm-1.safetensors", "0" * 64 + "  ../x"])
def test_hashes_that_cannot_be_read_are_told(folder: Path, line: str) -> None:
    (folder / SUMS).write_text(line)
    with pytest.raises(CheckpointError, match="line 1 is no hash and name"):
        load_lm(folder)


def test_saving_anew_writes_the_hashes_anew_and_keeps_the_others(folder: Path) -> None:
    model = open_speech_model(folder, CPU)
    (folder / "lm-2.safetensors").write_bytes(b"of a larger model")
    write_sums([folder / "lm-2.safetensors"])
    save_lm(folder, model.model.config, {n: t + 1 for n, t in model.model.state_dict().items()})
    save_codec(folder, model.codec)
    assert "lm-2" not in (folder / SUMS).read_text()
    assert open_speech_model(folder, CPU).sha256 != model.sha256


def test_the_hashes_are_those_of_sha256sum(folder: Path) -> None:
    command = ["sha256sum", "--check", "--strict", SUMS]
    assert subprocess.run(command, cwd=folder, capture_output=True, check=False).returncode == 0


def test_the_files_that_are_shipped_are_those_that_were_exported() -> None:
    """`python -m lab.training.export` writes both, as sha256sum does."""
    files = sorted(BUILTIN_MODEL.glob("*.safetensors"))
    assert len(files) >= 2
    told = (BUILTIN_MODEL / SUMS).read_text().splitlines()
    assert told == [f"{sha256_of([file])}  {file.name}" for file in files]

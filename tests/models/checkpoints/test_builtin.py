"""The built-in layout: a round trip keeps everything, and damage is named, never loaded."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from models.checkpoints import builtin
from models.checkpoints.builtin import (
    load_codec,
    load_lm,
    save_codec,
    save_lm,
    save_null_head,
    save_prior,
)
from models.checkpoints.files import CheckpointError, read_tensors, write_tensors
from models.checkpoints.sources import open_speech_model
from models.codecs.spectral import SpectralCodec
from models.codecs.speech_prior import SpeechPrior
from models.config import NullHeadConfig, SpectralCodecConfig
from models.null_head import NullHead
from tests.toy.make_toy import make

CPU = torch.device("cpu")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return make(tmp_path / "toy")


def test_the_same_seed_makes_the_same_weights(tmp_path: Path) -> None:
    one, other, third = (
        open_speech_model(make(tmp_path / name / "toy", seed), CPU).sha256
        for name, seed in (("a", 0), ("b", 0), ("c", 1))
    )
    assert one == other != third


def test_weights_split_over_files_load_as_one(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = load_lm(folder)
    monkeypatch.setattr(builtin, "FILE_BYTES", 50_000)
    save_lm(folder, model.config, model.state_dict())
    files = list(folder.glob("lm-*.safetensors"))
    assert len(files) > 3
    again = load_lm(folder)
    assert again.config == model.config
    for name, tensor in model.state_dict().items():
        assert torch.equal(again.state_dict()[name], tensor)


def test_a_null_head_is_a_part_of_its_own_and_what_is_there_stays(folder: Path) -> None:
    files = {one.name: one.read_bytes() for one in folder.glob("lm-*")}
    spec = NullHeadConfig(layers=(1,), hidden=8, rank=2, max_strength=2.0)
    config = load_lm(folder).config
    for number in range(2):  # the second takes the place of the first
        head = NullHead(config.width, config.codes + 1, spec)
        torch.nn.init.constant_(head.up.weight, 0.5 + number)
        save_null_head(folder, spec, head.state_dict())
        model = load_lm(folder)
        assert model.config == config.model_copy(update={"null_head": spec})
        assert model.state_dict()["null_head.up.weight"].unique().tolist() == [0.5 + number]
        assert {name: (folder / name).read_bytes() for name in files} == files
    (folder / "lm-null-head.safetensors").unlink()
    with pytest.raises(CheckpointError, match="null_head"):
        load_lm(folder)


def edit(path: Path, change: Callable[[dict[str, torch.Tensor]], object]) -> None:
    tensors = load_file(path)
    change(tensors)
    save_file(tensors, path)


def set_config(folder: Path, name: str, **fields: object) -> None:
    path = folder / name
    path.write_text(json.dumps(json.loads(path.read_text()) | fields))


LM, CODEC, BOOKS = "lm-1.safetensors", "codec.safetensors", "quantizer.codebooks"
DAMAGE: dict[str, tuple[Callable[[Path], object], str]] = {
    "no language model": (lambda f: (f / LM).unlink(), "holds no lm-"),
    "no codec": (lambda f: (f / CODEC).unlink(), "codec.safetensors does not exist"),
    "no config": (lambda f: (f / "lm.json").unlink(), "lm.json: No such file"),
    "truncated": (
        lambda f: (f / LM).write_bytes((f / LM).read_bytes()[:-100]),
        "is damaged or no safetensors file",
    ),
    "empty": (lambda f: (f / LM).write_bytes(b""), "is damaged or no safetensors file"),
    "a pickle": (lambda f: torch.save({}, f / CODEC), "is damaged or no safetensors file"),
    "a huge header": (
        lambda f: (f / LM).write_bytes(b"\xff" * 8 + b"{}"), "is damaged or no safetensors file",
    ),
    "a missing tensor": (
        lambda f: edit(f / LM, lambda t: t.pop("separator")),
        "tensor separator is missing",
    ),
    "an unknown tensor": (
        lambda f: edit(f / LM, lambda t: t.update(other=torch.zeros(1))), "tensor other is unknown",
    ),
    "a wrong shape": (
        lambda f: edit(f / LM, lambda t: t.update(separator=torch.zeros(5))),
        r"tensor separator has shape \[5\], expected \[16\]",
    ),
    "a codec of another shape": (
        lambda f: edit(f / CODEC, lambda t: t.update({BOOKS: t[BOOKS][:, :-1].contiguous()})),
        r"quantizer\.codebooks has shape \[8, 511, 8\], expected \[8, 512, 8\]",
    ),
    "NaN": (
        lambda f: edit(f / LM, lambda t: t["separator"].fill_(torch.nan)),
        "tensor separator holds NaN",
    ),
    "two files with one tensor": (
        lambda f: (f / "lm-2.safetensors").write_bytes((f / LM).read_bytes()),
        "is in another file too",
    ),
    "an unknown field": (
        lambda f: set_config(f, "lm.json", causal_size=2), "causal_size: Extra inputs",
    ),
    "no JSON": (lambda f: (f / "codec.json").write_text("{"), "codec.json: it is not JSON"),
    "no rate": (lambda f: set_config(f, "codec.json", sample_rate_hz=0), "sample_rate_hz: "),
    "no ratios": (lambda f: set_config(f, "codec.json", ratios=[]), "ratios: "),
    "a ratio of nothing": (lambda f: set_config(f, "codec.json", ratios=[8, 0]), "ratios.1: "),
    "a gain beyond every sound": (lambda f: set_config(f, "codec.json", gain=1e39), "gain: "),
    "a width that is text": (lambda f: set_config(f, "lm.json", width="16"), "width: .*integer"),
    "a number that is true": (lambda f: set_config(f, "codec.json", levels=True), "levels: "),
    "layers without end": (lambda f: set_config(f, "lm.json", layers=10**8), "layers: .*1024"),
    "nested brackets": (lambda f: (f / "lm.json").write_text("[" * 10**5), "recursion limit"),
    "codec and model of different books": (
        lambda f: set_config(f, "codec.json", levels=7), "codebooks|levels",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", DAMAGE)
def test_damage_is_named(folder: Path, name: str) -> None:
    damage, message = DAMAGE[name]
    damage(folder)
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    with pytest.raises(CheckpointError, match=message):
        open_speech_model(folder, CPU)
    assert before == {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_folder_that_is_none_is_named(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="nothing is neither a model's folder nor"):
        open_speech_model(tmp_path / "nothing", CPU)


def test_a_file_that_is_not_for_us_is_told_as_such(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.safetensors"
    write_tensors(path, {"a": torch.zeros(1)})
    assert path.stat().st_mode & 0o777 == 0o644
    path.chmod(0o600)
    monkeypatch.setattr("models.checkpoints.files.os.access", lambda *_: False)  # root may read all
    with pytest.raises(CheckpointError, match=r"\(-rw-------\) is not readable by uid \d+$"):
        read_tensors([path])


def with_prior(folder: Path, bands: int) -> SpectralCodec:
    """Give a folder a codec that restores recordings."""
    codec = SpectralCodec(
        SpectralCodecConfig(
            width=16, ffn=24, dimension=8, bands=20, encoder_layers=1, decoder_layers=1
        )
    )
    save_codec(folder, codec)
    save_prior(folder, SpeechPrior(torch.randn(bands).double(), torch.eye(bands).double(), -6.9))
    return codec


def test_a_prior_of_speech_comes_back_and_is_none_of_the_weights(tmp_path: Path) -> None:
    saved = with_prior(tmp_path, 20)
    codec = load_codec(tmp_path)
    assert isinstance(codec, SpectralCodec)
    assert codec.prior is not None
    assert codec.prior.floor == pytest.approx(-6.9, abs=0.01)
    assert codec.state_dict().keys() == saved.state_dict().keys()
    (tmp_path / "prior.safetensors").unlink()
    without = load_codec(tmp_path)
    assert isinstance(without, SpectralCodec)
    assert without.prior is None


def test_a_prior_of_another_codec_is_refused(tmp_path: Path) -> None:
    with_prior(tmp_path, 21)
    with pytest.raises(CheckpointError, match="prior of 20 bands"):
        load_codec(tmp_path)


def test_a_damaged_prior_is_refused(tmp_path: Path) -> None:
    with_prior(tmp_path, 20)
    edit(tmp_path / "prior.safetensors", lambda tensors: tensors["mean"].add_(1))
    with pytest.raises(CheckpointError, match="damaged"):
        load_codec(tmp_path)

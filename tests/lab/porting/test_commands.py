"""`valle-serve tools`: what it says of each kind of model, and what it makes of it."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from app.cli import main
from models.checkpoints.hub import PINNED
from tests.conftest import ROOT
from tests.toy.make_public import Form, make_public


@pytest.fixture(autouse=True)
def _cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TTS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))


def told(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, str]:
    """Run `tools` and return the facts that it prints, by their names."""
    assert main(["tools", *arguments]) == 0, capsys.readouterr().err
    lines = capsys.readouterr().out.splitlines()
    return {line.split(maxsplit=1)[0]: line.split(maxsplit=1)[1] for line in lines}


def test_inspect_tells_what_the_built_in_voice_is(capsys: pytest.CaptureFixture[str]) -> None:
    facts = told(capsys, "inspect", str(ROOT / "weights"))
    assert facts["layout"] == "built-in"
    assert facts["licence"] == "Apache-2.0"
    assert "NAR mask block_causal" in facts["switches"]
    numbers = sum(
        tensor.numel()
        for file in (ROOT / "weights").glob("lm-*.safetensors")
        for tensor in load_file(file).values()
    )
    assert facts["parameters"].startswith(f"{numbers:,}, stored as float16")


@pytest.mark.parametrize("form", ["ar+nar", "ar+nar-len", "hf"])
def test_inspect_tells_layout_sizes_switches_and_memory(
    form: Form, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    facts = told(capsys, "inspect", str(make_public(tmp_path, form)))
    assert facts["layout"] == form
    assert facts["sizes"].startswith("2 layers of 16, 2 heads")
    assert facts["segments"] == "phn, level, prom, resp"
    assert "code sums exclusive" in facts["switches"]
    assert "256 bytes a position" in facts["memory"]  # 2 x 2 layers x 16 numbers x 4 bytes
    assert "not stated" in facts["licence"]


def test_inspect_reads_no_tensor(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = make_public(tmp_path, "ar+nar")
    before = told(capsys, "inspect", str(path))
    header = 8 + int.from_bytes(path.read_bytes()[:8], "little")
    content = path.read_bytes()
    path.write_bytes(content[:header] + b"\xff" * (len(content) - header))
    assert told(capsys, "inspect", str(path)) == before


def test_inspect_of_a_pinned_name_tells_commit_size_and_licence(
    capsys: pytest.CaptureFixture[str],
) -> None:
    facts = told(capsys, "inspect", "ecker/vall-e")
    assert PINNED["ecker/vall-e"].revision in facts["hub"]
    assert facts["bytes"] == "458,419,568"
    assert facts["licence"] == "AGPL-3.0"
    assert facts["here"].startswith("no: `valle-serve models download")


def test_convert_settles_the_switches(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = make_public(tmp_path / "published", "ar+nar-len")
    target = tmp_path / "ours"
    switches = ["--code-sums", "inclusive", "--nar-mask", "causal", "--language-segment"]
    assert main(["tools", "convert", str(source), str(target), *switches]) == 0
    assert "code sums inclusive, NAR mask causal, a language segment" in capsys.readouterr().out
    facts = told(capsys, "inspect", str(target))
    assert facts["layout"] == "built-in"
    assert facts["segments"] == "phn, lang, level, prom, resp"
    assert "inclusive (prompt), inclusive (response); NAR mask causal" in facts["switches"]


def test_eras_prints_every_combination_the_cheapest_first(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = make_public(tmp_path, "ar+nar")
    pair = tmp_path / "pair.json"
    codes = torch.randint(1024, (6, 8), generator=torch.Generator().manual_seed(0)).tolist()
    pair.write_text(json.dumps({"phonemes": "ab äb", "codes": codes}))
    assert main(["tools", "eras", str(source), "--codes", str(pair)]) == 0
    _, *lines = capsys.readouterr().out.splitlines()
    totals = [sum(map(float, line.split()[:2])) for line in lines]
    assert len({line.split("sums")[1] for line in lines}) == 12
    assert totals == sorted(totals)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["inspect", "/nowhere"], "model: /nowhere does not exist"),
        (["inspect", "nobody/nothing"], "model: nobody/nothing is neither a file or folder here"),
        (["convert", "/nowhere.sft", "/tmp/none"], "convert: /nowhere.sft does not exist"),
        (["eras", "/nowhere.sft", "--codes", "a.enc"], "model: /nowhere.sft does not exist"),
        (["eras", "/nowhere.sft"], "required"),
        (["convert", "a", "b", "--code-sums", "some"], "code-sums: Input should be 'inclusive'"),
        ([], "subcommand is required"),
    ],
)
def test_what_cannot_be_done_is_said_in_a_line(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["tools", *arguments]) == 2
    assert message in capsys.readouterr().err

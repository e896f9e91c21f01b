"""Published files that are damaged, contradict themselves or are something else: named, refused."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from lab.porting.convert import convert
from models.checkpoints.files import CheckpointError
from models.checkpoints.published.load import load_public, read_public
from tests.toy import make_public as toy

Change = Callable[[dict[str, Tensor]], object]


def edited(change: Change) -> Callable[[Path], object]:
    def damage(path: Path) -> None:
        tensors = load_file(path)
        change(tensors)
        save_file(tensors, path, toy.metadata("ar+nar-len"))

    return damage


def saying(**changes: Any) -> Callable[[Path], object]:
    return lambda path: save_file(load_file(path), path, toy.metadata("ar+nar-len", **changes))


def flagged(**flags: object) -> Callable[[Path], object]:
    return saying(experimental=toy.FLAGS | flags)


def described(**fields: object) -> Callable[[Path], object]:
    return lambda path: save_file(
        load_file(path), path, {name: json.dumps(value) for name, value in fields.items()}
    )


HEAD, TABLE = "classifiers.proj.8.weight", "resps_emb.embeddings.8.weight"
DAMAGE: dict[str, tuple[Callable[[Path], object], str]] = {
    "truncated": (
        lambda p: p.write_bytes(p.read_bytes()[:-100]), "is damaged or no safetensors file",
    ),
    "missing": (lambda p: p.unlink(), "does not exist"),
    "a missing tensor": (edited(lambda t: t.pop("sep")), "tensor sep is missing"),
    "a missing table of sizes": (
        edited(lambda t: t.pop("text_emb.weight")), r"tensor text_emb\.weight is missing",
    ),
    "a missing layer": (
        edited(lambda t: t.pop("model.layers.1.self_attn.q_proj.weight")),
        r"tensor model\.layers\.1\.self_attn\.q_proj\.weight is missing",
    ),
    "an extra tensor": (
        edited(lambda t: t.update({"model.layers.0.self_attn.q_norm.weight": torch.ones(16)})),
        r"tensor model\.layers\.0\.self_attn\.q_norm\.weight is unknown",
    ),
    "a wrong shape": (
        edited(lambda t: t.update({"model.norm.weight": torch.ones(15)})),
        r"tensor model\.norm\.weight has shape \[15\], expected \[16\]",
    ),
    "a head of a code too many": (
        edited(lambda t: t.update({HEAD: torch.ones(1025, 16)})),
        r"classifiers\.proj\.8\.weight has shape \[1025, 16\], expected \[1024, 16\]",
    ),
    "the head of a task of the other layout": (
        edited(lambda t: t.pop(TABLE)),
        r"layout ar\+nar\): tensor .* (unknown|has shape)",
    ),
    "a matrix that is none": (
        edited(lambda t: t.update({"text_emb.weight": torch.ones(256)})), "expected a matrix",
    ),
    "integers": (
        edited(lambda t: t.update(sep=torch.ones(16, dtype=torch.int64))), "holds torch.int64",
    ),
    "version 7": (
        edited(lambda t: t.update({"proms_emb.embs.0.weight": t.pop("sep")})), "version 7",
    ),
    "something else": (
        lambda p: save_file({"weight": torch.ones(3)}, p), "no known layout: weight",
    ),
    "another vocabulary": (
        lambda p: save_file(
            {"lm_head.weight": torch.ones(5, 4), "model.embed_tokens.weight": torch.ones(5, 4)}, p
        ),
        r"has shape \[5, 4\], expected \[17702, 4\]",
    ),
    "a lie about the width": (
        saying(size={"dim": 1024}), r"config\.size\.dim is 1024, the tensors have 16",
    ),
    "a lie about the layers": (
        saying(size="half"), r"size\.dim is 512, the tensors have 16",
    ),
    "heads that do not divide": (
        saying(size={"heads": 3}), "width 16 cannot be divided into 3 heads",
    ),
    "another version": (saying(version=7), r"config\.version: Input should be 5 or 6"),
    "another stack": (saying(arch_type="retnet"), r"arch_type: Input should be 'llama'"),
    "no AR": (saying(capabilities=["len"]), "capabilities: ar, nar must be among them"),
    "several tokens a step": (flagged(causal_size=4), "causal_size: Input should be 1"),
    "one head for all": (flagged(split_classifiers=False), "split_classifiers: Input should"),
    "some levels only": (flagged(rvq_level_range=[0, 4]), "rvq_level_range: Tuple should"),
    "an unknown invention": (flagged(predict_causally=True), "predict_causally: Input should"),
    "a malformed flag": (flagged(causal_size="x"), r"config\.experimental\.causal_size: "),
    "a config that is none": (described(config="what"), r"config\.: "),
    "a vocabulary past the table": (
        described(userdata={"symmap": {"a": 256}}), "phoneme 'a' has id 256, the table 256 rows",
    ),
    "a vocabulary of words": (
        described(userdata={"symmap": {"a": "b"}}), "does not map names to ids",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", DAMAGE)
def test_damage_is_named_and_nothing_is_touched(tmp_path: Path, name: str) -> None:
    damage, message = DAMAGE[name]
    path = toy.make_public(tmp_path / "public", "ar+nar-len")
    damage(path)
    with pytest.raises(CheckpointError, match=message):
        load_public(path)
    with pytest.raises(CheckpointError, match=message):
        convert(path, tmp_path / "ours")
    assert not (tmp_path / "ours").exists()


def test_numbers_that_are_none_are_named(tmp_path: Path) -> None:
    path = toy.make_public(tmp_path / "public", "ar+nar")
    edited(lambda tensors: tensors["sep"].fill_(torch.nan))(path)
    save_file(load_file(path), path, toy.metadata("ar+nar"))
    with pytest.raises(CheckpointError, match="separator holds NaN"):
        load_public(path)
    with pytest.raises(CheckpointError, match="separator holds NaN"):
        convert(path, tmp_path / "ours")
    assert not (tmp_path / "ours").exists()


def test_a_table_that_layout_a_lacks_cannot_be_claimed(tmp_path: Path) -> None:
    path = toy.make_public(tmp_path, "ar+nar", capabilities=["ar", "nar", "len"])
    with pytest.raises(CheckpointError, match="claim the capability 'len'"):
        read_public(path)


@pytest.mark.parametrize(
    ("field", "value"),
    [("hidden_act", "silu"), ("rope_theta", 5e5), ("num_key_value_heads", 1), ("vocab_size", 5)],
)
def test_a_llama_of_another_kind_is_refused(tmp_path: Path, field: str, value: object) -> None:
    path = toy.make_public(tmp_path, "hf")
    toy.describe_hf(tmp_path, **{field: value})
    with pytest.raises(CheckpointError, match=f"{field} is {value!r}"):
        read_public(path)


def test_files_of_other_kinds_are_not_opened(tmp_path: Path) -> None:
    path = tmp_path / "model.pth"
    torch.save({}, path)
    with pytest.raises(CheckpointError, match="never pickles"):
        load_public(path)


def test_a_folder_must_leave_no_choice(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="holds 0 checkpoint files"):
        load_public(tmp_path)
    for name in ("a.sft", "b.safetensors"):
        (tmp_path / name).touch()
    with pytest.raises(CheckpointError, match="holds 2 checkpoint files"):
        load_public(tmp_path)


def test_converting_never_replaces_a_model(tmp_path: Path) -> None:
    path = toy.make_public(tmp_path, "ar+nar")
    convert(path, tmp_path / "ours")
    before = {file: file.read_bytes() for file in (tmp_path / "ours").iterdir()}
    assert sorted(file.name for file in before) == [
        "SHA256SUMS",
        "lm-1.safetensors",
        "lm.json",
    ]
    with pytest.raises(CheckpointError, match="holds a model already"):
        convert(path, tmp_path / "ours")
    assert before == {file: file.read_bytes() for file in (tmp_path / "ours").iterdir()}


def test_a_folder_that_cannot_be_written_holds_no_model(tmp_path: Path) -> None:
    path = toy.make_public(tmp_path, "ar+nar")
    (tmp_path / "ours").write_text("a file")
    with pytest.raises(CheckpointError, match="cannot be written"):
        convert(path, tmp_path / "ours")

"""LoRA files: merged they compute what the updated matrices would, and misfits are named."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from lab.porting.convert import convert
from models.checkpoints.builtin import load_lm
from models.checkpoints.files import CheckpointError
from models.checkpoints.published.load import load_public
from tests.models.valle_oracle import Oracle
from tests.toy import make_public as toy

RANK, ALPHA = 4, 8
TARGETS = {
    "self_attn.q_proj": (16, 16),
    "self_attn.v_proj": (16, 16),
    "mlp.up_proj": (32, 16),
    "mlp.down_proj": (16, 32),
}
CODES = torch.randint(toy.CODES, (6, 8), generator=torch.Generator().manual_seed(1))
IDS = [1, 9, 40, 2]


def updates() -> dict[str, tuple[Tensor, Tensor]]:
    generator = torch.Generator().manual_seed(3)
    return {
        f"layers.{layer}.{name}": (
            torch.randn(RANK, inner, generator=generator) * 0.3,
            torch.randn(outer, RANK, generator=generator) * 0.3,
        )
        for layer in range(toy.LAYERS)
        for name, (outer, inner) in TARGETS.items()
    }


def save(path: Path, prefix: str = "", middle: str = "", **config: object) -> Path:
    parts = {}
    for layer, (down, up) in updates().items():
        parts[f"{prefix}{layer}{middle}.lora_A"] = down
        parts[f"{prefix}{layer}{middle}.lora_B"] = up
    said = {"name": "toy", "rank": RANK, "alpha": ALPHA, "rvq_levels": []} | config
    save_file(parts, path, {"config": json.dumps(said)})
    return path


@pytest.mark.parametrize("prefix", ["", "model."])
@pytest.mark.parametrize("middle", ["", ".parametrizations.weight.0"])
def test_a_merged_file_computes_what_the_updated_matrices_would(
    tmp_path: Path, prefix: str, middle: str
) -> None:
    path = toy.make_public(tmp_path, "ar+nar")
    convert(path, tmp_path / "ours", loras=[save(tmp_path / "lora.sft", prefix, middle)])
    model = load_lm(tmp_path / "ours")
    updated = {name: tensor.double() for name, tensor in load_file(path).items()}
    for layer, (down, up) in updates().items():
        change = ALPHA / RANK * up.double() @ down.double()
        updated[f"model.{layer}.weight"] = updated[f"model.{layer}.weight"] + change
    oracle = Oracle(updated, toy.HEADS)
    found = model.ar_logits(model.prefix(IDS, 0), CODES)
    assert (found - oracle.logits("ar", IDS, CODES)).abs().max() < 1e-4
    plain = load_public(path)
    assert (found - plain.ar_logits(plain.prefix(IDS, 0), CODES)).abs().max() > 0.1


def rank(tensors: dict[str, Tensor]) -> None:
    tensors["layers.0.mlp.up_proj.lora_A"] = torch.ones(RANK + 1, 16)


@pytest.mark.parametrize(
    ("change", "config", "message"),
    [
        (rank, {}, r"layers\.0\.mlp\.up_proj\.lora_A has shape \[5, 16\] and lora_B \[32, 4\]"),
        (lambda t: t.pop("layers.0.mlp.up_proj.lora_B"), {}, "up_proj has lora_A alone"),
        (lambda t: t.update(other=torch.ones(1)), {}, "tensor other is no part of a LoRA"),
        (
            lambda t: t.update({f"layers.9.x.lora_{part}": torch.ones(4, 4) for part in "AB"}),
            {},
            r"layers\.9\.x names 0 tensors",
        ),
        (lambda t: t.clear(), {}, "holds no tensors"),
        (None, {"rvq_levels": [0]}, r"for levels \[0\] alone"),
        (None, {"rank": 128}, "says rank 128, the tensors have 4"),
        (None, {"alpha": "big"}, "says alpha 'big'"),
    ],
)
def test_tensors_and_metadata_that_do_not_fit_are_named(
    tmp_path: Path, change: Any, config: dict[str, Any], message: str
) -> None:
    path = toy.make_public(tmp_path, "ar+nar")
    lora = save(tmp_path / "lora.sft", **config)
    if change is not None:
        tensors = load_file(lora)
        change(tensors)
        save_file(tensors, lora)
    with pytest.raises(CheckpointError, match=message):
        convert(path, tmp_path / "ours", loras=[lora])

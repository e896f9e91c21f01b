"""Tiny checkpoints of random weights in the forms that e-c-k-e-r/vall-e's were published in.

Tensor names and shapes are those of the published files, sizes aside; the one-vocabulary form has
the published numbers of rows, because its rows have no names.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import torch
from safetensors.torch import save_file
from torch import Tensor

from lab.porting.convert import Switches
from models.checkpoints.published.load import load_public
from models.valle import Valle

Form = Literal["ar+nar", "ar+nar-len", "hf"]

WIDTH, HEADS, LAYERS, FFN, LEVELS, CODES, PHONEMES = 16, 2, 2, 32, 8, 1024, 256
FLAGS = {
    "split_classifiers": True,
    "audio_embedding_sums": True,
    "unified_position_ids": False,
    "noncausal_masks": True,
}
SYMMAP = {"<unk>": 0, "<bos>": 1, "</eos>": 2, "<mask>": 3, " ": 4, "a": 5, "ä": 5, "b": 6, "ab": 7}


def shapes(form: Form, *, levels: int = LEVELS, codes: int = CODES) -> dict[str, tuple[int, ...]]:
    """Every tensor of layout A or B, biases of heads and leftovers of other tasks included."""
    d, masked = WIDTH, form == "ar+nar-len"
    found: dict[str, tuple[int, ...]] = {
        "text_emb.weight": (PHONEMES, d),
        "langs_emb.weight": (6, d),
        "tasks_emb.weight": (9, d),
        "tones_emb.weight": (1, d),
        "rvq_l_emb.weight": (levels, d),
        "sep": (d,),
        "dropout_token": (d,),
        "model.norm.weight": (d,),
    }
    if masked:
        found["len_emb.weight"] = (11, d)
    else:
        found["model.embed_tokens.weight"] = (codes + 1, d)
    for k in range(levels):
        found[f"proms_emb.embeddings.{k}.weight"] = (codes, d)
    for k in range(levels + masked):
        found[f"resps_emb.embeddings.{k}.weight"] = (codes + (k in {0, levels}), d)
    heads = [codes + 1, *[codes] * (levels - 1), *([codes] if masked else []), PHONEMES]
    for k, rows in enumerate([*heads, *([11] if masked else [])]):
        found[f"classifiers.proj.{k}.weight"] = (rows, d)
        found[f"classifiers.proj.{k}.bias"] = (rows,)
    for i in range(LAYERS):
        layer = f"model.layers.{i}"
        for part in "qkvo":
            found[f"{layer}.self_attn.{part}_proj.weight"] = (d, d)
        for part in ("gate", "up"):
            found[f"{layer}.mlp.{part}_proj.weight"] = (FFN, d)
        found[f"{layer}.mlp.down_proj.weight"] = (d, FFN)
        for part in ("input", "post_attention"):
            found[f"{layer}.{part}_layernorm.weight"] = (d,)
    return found


def tensors(
    form: Form, seed: int = 0, dtype: torch.dtype = torch.float16, **sizes: int
) -> dict[str, Tensor]:
    """Random tensors of layout A or B: matrices that spread the logits, norms about one."""
    generator = torch.Generator().manual_seed(seed)
    made = {}
    for name, shape in shapes(form, **sizes).items():
        noise = torch.randn(shape, generator=generator)
        if "norm" in name:
            noise = 1 + 0.1 * noise
        elif name.startswith("model.layers"):
            noise *= 0.7 * shape[1] ** -0.5
        made[name] = noise.to(dtype)
    return made


def without_masked(full: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Layout A with the weights of layout B."""
    dropped = {"len_emb.weight", f"resps_emb.embeddings.{LEVELS}.weight"}
    dropped |= {f"classifiers.proj.{k}.{part}" for k in (8, 9, 10) for part in ("weight", "bias")}
    kept = {name: tensor for name, tensor in full.items() if name not in dropped}
    spoken = {name: full[name] for name in full if name.startswith("classifiers.proj.9.")}
    return kept | {name.replace(".9.", ".8."): tensor for name, tensor in spoken.items()}


def without_biases(full: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The same weights with no bias at any head."""
    return {name: tensor for name, tensor in full.items() if not name.endswith(".bias")}


def one_vocabulary(full: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The `hf` form of layout B: 17,702 rows, in the order of the published conversion."""

    def series(stem: str, numbers: range) -> list[Tensor]:
        return [full[f"{stem}.{k}.weight"] for k in numbers]

    def nothing(rows: int) -> Tensor:
        return torch.full((rows, WIDTH), 7.0, dtype=full["sep"].dtype)  # meaningless

    responses = "resps_emb.embeddings"
    table = [
        *(
            full[f"{name}_emb.weight"]
            for name in ("text", "rvq_l", "langs", "tasks", "len", "tones")
        ),
        full["sep"][None],
        *series("proms_emb.embeddings", range(LEVELS)),
        *series(responses, range(LEVELS + 1)),
    ]
    heads = series("classifiers.proj", range(LEVELS + 3))
    head = [heads[9], nothing(8 + 6 + 9), heads[10], nothing(1 + 1 + LEVELS * CODES)]
    head += [*heads[:8], heads[8], nothing(1)]
    kept = {
        name: tensor
        for name, tensor in full.items()
        if name.startswith(("model.layers", "model.norm"))
    }
    return kept | {
        "model.embed_tokens.weight": torch.cat(table),
        "lm_head.weight": torch.cat(head),
    }


def metadata(form: Form, *, levels: int = LEVELS, **changes: Any) -> dict[str, str]:
    """What the exporter writes beside the tensors; ``changes`` go into `config`."""
    config = {
        "name": form,
        "version": 5,
        "size": {"dim": WIDTH, "heads": HEADS, "layers": LAYERS, "resp_levels": levels},
        "arch_type": "llama",
        "capabilities": ["ar", "nar", *(["len"] if form == "ar+nar-len" else [])],
        "experimental": FLAGS,
    }
    config |= changes
    return {
        "config": json.dumps(config),
        "stats": json.dumps({"global_step": 0}),
        "userdata": json.dumps({"symmap": SYMMAP}),
    }


def make_public(folder: Path, form: Form, seed: int = 0, **changes: Any) -> Path:
    """Write a toy checkpoint and return its file."""
    folder.mkdir(parents=True, exist_ok=True)
    if form == "hf":
        path = folder / "model.safetensors"
        save_file(one_vocabulary(tensors("ar+nar-len", seed)), path)
        describe_hf(folder)
    else:
        path = folder / "fp32.sft"
        save_file(tensors(form, seed), path, metadata(form, **changes))
    return path


def describe_hf(folder: Path, **changes: Any) -> None:
    """Write what lies beside the one-vocabulary form."""
    config = {
        "architectures": ["LlamaForCausalLM"],
        "hidden_size": WIDTH,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS,
        "hidden_act": "gelu",
        "rms_norm_eps": 1e-6,
        "rope_theta": 10000.0,
        "vocab_size": 17702,
        "tie_word_embeddings": False,
    }
    (folder / "config.json").write_text(json.dumps(config | changes))
    vocabulary = SYMMAP | {"<|sep|>": 291}
    (folder / "tokenizer.json").write_text(json.dumps({"model": {"vocab": vocabulary}}))


def load_switched(path: Path, switches: Switches) -> Valle:
    """Load a published model as if it was trained with these switches."""
    model = load_public(path)
    model.config = switches.applied(model.config)
    return model

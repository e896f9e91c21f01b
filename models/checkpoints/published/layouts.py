"""The two tensor layouts of e-c-k-e-r/vall-e, and their mapping to our tensor names.

`ar+nar` predicts level 0 token by token. `ar+nar-len` can also predict it in masked passes: it has
one more response table with a head, and length prediction. The layout is detected from the tensors,
of which every name and shape is checked. `one_vocabulary` converts the third format into the
second.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from models.checkpoints.files import CheckpointError
from models.config import LENGTH_TOKENS

LayoutName = Literal["ar+nar", "ar+nar-len"]
Shape = tuple[int, ...]

# Tensors of other tasks, versions or of training, which some files have and inference ignores.
_UNUSED = re.compile(
    r"model\.embed_tokens\.weight|tasks_emb\.weight|tones_emb\.weight|raw_text_emb\.weight"
    r"|dropout_token|time_emb\..*|.*\.inv_freq"
)
_LAYER = re.compile(r"model\.layers\.(\d+)\.(.+)\.weight")


@dataclass(frozen=True)
class FileLayout:
    """Name of a layout, and the sizes of a file."""

    name: LayoutName
    width: int  # D
    layers: int  # blocks of the stack
    ffn: int  # hidden width of the feed-forward
    levels: int  # K
    codes: int  # V
    phonemes: int  # rows of the phoneme table
    languages: int  # rows of the language table

    @property
    def masked_level_0(self) -> bool:
        """Whether it can predict level 0 in masked passes."""
        return self.name == "ar+nar-len"

    def inventory(self) -> dict[str, Shape]:
        """Return the shape of each required tensor; biases of heads are optional."""
        d, levels = self.width, self.levels
        shapes: dict[str, Shape] = {
            "text_emb.weight": (self.phonemes, d),
            "langs_emb.weight": (self.languages, d),
            "rvq_l_emb.weight": (levels, d),
            "sep": (d,),
            "model.norm.weight": (d,),
        }
        for level in range(levels):
            rows = self.codes + (level == 0)
            shapes[f"proms_emb.embeddings.{level}.weight"] = (self.codes, d)
            shapes[f"resps_emb.embeddings.{level}.weight"] = (rows, d)
        if self.masked_level_0:
            shapes[f"resps_emb.embeddings.{levels}.weight"] = (self.codes + 1, d)
            shapes["len_emb.weight"] = (LENGTH_TOKENS, d)
        for number, rows in self.heads().items():
            shapes[f"classifiers.proj.{number}.weight"] = (rows, d)
        for layer in range(self.layers):
            for part in ("q", "k", "v", "o"):
                shapes[f"model.layers.{layer}.self_attn.{part}_proj.weight"] = (d, d)
            for part in ("gate", "up"):
                shapes[f"model.layers.{layer}.mlp.{part}_proj.weight"] = (self.ffn, d)
            shapes[f"model.layers.{layer}.mlp.down_proj.weight"] = (d, self.ffn)
            for part in ("input", "post_attention"):
                shapes[f"model.layers.{layer}.{part}_layernorm.weight"] = (d,)
        return shapes

    def heads(self) -> dict[int, int]:
        """Return the indices of the heads in use, and their rows."""
        rows = {level: self.codes + (level == 0) for level in range(self.levels)}
        if self.masked_level_0:
            rows |= {self.levels: self.codes, self.levels + 2: LENGTH_TOKENS}
        return rows

    def unused_heads(self) -> dict[int, int | None]:
        """Return the indices of the heads of other tasks, and their rows if known."""
        speech_to_text = self.levels + self.masked_level_0
        return {speech_to_text: self.phonemes, self.levels + 1 + 2 * self.masked_level_0: None}


def find_layout(tensors: Mapping[str, Tensor], source: str) -> FileLayout:
    """Detect the layout of published tensors, even on the device "meta", and check them all.

    Raises:
        CheckpointError: It is neither layout, or a tensor is missing, unknown or of another shape.
    """
    if "proms_emb.embs.0.weight" in tensors:
        raise CheckpointError(f"{source}: this is vall-e version 7 (all levels at once), not 5")
    if "resps_emb.embeddings.0.weight" not in tensors:
        some = ", ".join(sorted(tensors)[:3]) or "none at all"
        raise CheckpointError(f"{source}: tensors of no known layout: {some}")
    levels, width = _shape(tensors, "rvq_l_emb.weight", source)
    masked = f"resps_emb.embeddings.{levels}.weight" in tensors
    layout = FileLayout(
        name="ar+nar-len" if masked else "ar+nar",
        width=width,
        layers=len({found[1] for name in tensors if (found := _LAYER.fullmatch(name))}),
        ffn=_shape(tensors, "model.layers.0.mlp.gate_proj.weight", source)[0],
        levels=levels,
        codes=_shape(tensors, "resps_emb.embeddings.1.weight", source)[0],
        phonemes=_shape(tensors, "text_emb.weight", source)[0],
        languages=_shape(tensors, "langs_emb.weight", source)[0],
    )
    _check(layout, tensors, source)
    return layout


def rename(layout: FileLayout, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Rename checked tensors to those of `models.valle.Valle`, fusing q/k/v and gate/up."""
    ours = {
        "phonemes.weight": tensors["text_emb.weight"],
        "languages.weight": tensors["langs_emb.weight"],
        "level.weight": tensors["rvq_l_emb.weight"],
        "separator": tensors["sep"],
        "transformer.norm.weight": tensors["model.norm.weight"],
    }
    for level in range(layout.levels):
        ours[f"prompt.{level}.weight"] = tensors[f"proms_emb.embeddings.{level}.weight"]
        ours[f"response.{level}.weight"] = tensors[f"resps_emb.embeddings.{level}.weight"]
    if layout.masked_level_0:
        table = tensors[f"resps_emb.embeddings.{layout.levels}.weight"]
        ours |= {"masked_response.weight": table, "length_digits.weight": tensors["len_emb.weight"]}
    for number in layout.heads():
        weight = tensors[f"classifiers.proj.{number}.weight"]
        bias = tensors.get(f"classifiers.proj.{number}.bias")
        name = {layout.levels: "masked_head", layout.levels + 2: "length_head"}.get(
            number, f"heads.{number}"
        )
        ours[f"{name}.weight"] = weight
        ours[f"{name}.bias"] = weight.new_zeros(len(weight)) if bias is None else bias
    for layer in range(layout.layers):
        theirs, here = f"model.layers.{layer}", f"transformer.blocks.{layer}"
        fused = {
            "attention_norm": ("input_layernorm",),
            "attention.qkv": tuple(f"self_attn.{part}_proj" for part in "qkv"),
            "attention.out": ("self_attn.o_proj",),
            "feed_forward_norm": ("post_attention_layernorm",),
            "feed_forward.gate_up": ("mlp.gate_proj", "mlp.up_proj"),
            "feed_forward.down": ("mlp.down_proj",),
        }
        for name, parts in fused.items():
            matrices = [tensors[f"{theirs}.{part}.weight"] for part in parts]
            ours[f"{here}.{name}.weight"] = torch.cat(matrices)
    return ours


def _shape(tensors: Mapping[str, Tensor], name: str, source: str) -> tuple[int, int]:
    """Return the shape of a matrix."""
    if name not in tensors:
        raise CheckpointError(f"{source}: tensor {name} is missing")
    shape = tuple(tensors[name].shape)
    if len(shape) != 2 or not all(shape):
        raise CheckpointError(f"{source}: tensor {name} has shape {list(shape)}, expected a matrix")
    return shape


def _check(layout: FileLayout, tensors: Mapping[str, Tensor], source: str) -> None:
    wanted = layout.inventory()
    where = f"{source} (layout {layout.name})"
    missing = sorted(wanted.keys() - tensors.keys())
    if missing:
        raise CheckpointError(f"{where}: tensor {missing[0]} is missing ({len(missing)} in all)")
    optional: dict[str, Shape] = {
        f"classifiers.proj.{number}.bias": (rows,) for number, rows in layout.heads().items()
    }
    for number, rows in layout.unused_heads().items():
        for part, rest in (("weight", (layout.width,)), ("bias", ())):
            name = f"classifiers.proj.{number}.{part}"
            if name in tensors:
                optional[name] = (tensors[name].shape[0] if rows is None else rows, *rest)
    known = wanted | optional
    unknown = sorted(name for name in tensors.keys() - known.keys() if not _UNUSED.fullmatch(name))
    if unknown:
        raise CheckpointError(f"{where}: tensor {unknown[0]} is unknown ({len(unknown)} in all)")
    for name in sorted(tensors.keys() & known.keys()):
        if (found := tuple(tensors[name].shape)) != known[name]:
            raise CheckpointError(
                f"{where}: tensor {name} has shape {list(found)}, expected {list(known[name])}"
            )
        if not tensors[name].is_floating_point():
            raise CheckpointError(f"{where}: tensor {name} holds {tensors[name].dtype}")

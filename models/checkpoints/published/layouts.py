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

from models.checkpoints.files import CheckpointError, check_tensors, matrix_shape
from models.config import LENGTH_TOKENS

LayoutName = Literal["ar+nar", "ar+nar-len"]
Shape = tuple[int, ...]

# Tensors of other tasks, versions or of training, which some files have and inference ignores.
_UNUSED = re.compile(
    r"model\.embed_tokens\.weight|tasks_emb\.weight|tones_emb\.weight|raw_text_emb\.weight"
    r"|dropout_token|time_emb\..*|.*\.inv_freq"
)
_LAYER = re.compile(r"model\.layers\.(\d+)\.(.+)\.weight")
_SIDES = "proms", "resps"
# Of each layer: our name, the published ones that are joined in it, and their shape.
_BLOCK = (
    ("attention_norm", ("input_layernorm",), "norm"),
    ("attention.qkv", tuple(f"self_attn.{part}_proj" for part in "qkv"), "square"),
    ("attention.out", ("self_attn.o_proj",), "square"),
    ("feed_forward_norm", ("post_attention_layernorm",), "norm"),
    ("feed_forward.gate_up", ("mlp.gate_proj", "mlp.up_proj"), "up"),
    ("feed_forward.down", ("mlp.down_proj",), "down"),
)


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

    def tables(self) -> dict[str, tuple[tuple[str, ...], Shape]]:
        """Return what each of our tensors joins: required published ones, and the shape of each."""
        d = self.width
        levels = self.levels
        found: dict[str, tuple[tuple[str, ...], Shape]] = {
            "phonemes.weight": (("text_emb.weight",), (self.phonemes, d)),
            "languages.weight": (("langs_emb.weight",), (self.languages, d)),
            "level.weight": (("rvq_l_emb.weight",), (levels, d)),
            "separator": (("sep",), (d,)),
            "transformer.norm.weight": (("model.norm.weight",), (d,)),
        }
        for level in range(levels):
            rows = self.codes + (level == 0)
            prompt, response = (f"{side}_emb.embeddings.{level}.weight" for side in _SIDES)
            found[f"prompt.{level}.weight"] = ((prompt,), (self.codes, d))
            found[f"response.{level}.weight"] = ((response,), (rows, d))
        if self.masked_level_0:
            masked = f"resps_emb.embeddings.{levels}.weight"
            found["masked_response.weight"] = ((masked,), (self.codes + 1, d))
            found["length_digits.weight"] = (("len_emb.weight",), (LENGTH_TOKENS, d))
        for number, (name, rows) in self.heads().items():
            found[f"{name}.weight"] = ((f"classifiers.proj.{number}.weight",), (rows, d))
        shapes = {"square": (d, d), "up": (self.ffn, d), "down": (d, self.ffn), "norm": (d,)}
        for layer in range(self.layers):
            for name, parts, shape in _BLOCK:
                joined = tuple(f"model.layers.{layer}.{part}.weight" for part in parts)
                found[f"transformer.blocks.{layer}.{name}.weight"] = joined, shapes[shape]
        return found

    def heads(self) -> dict[int, tuple[str, int]]:
        """Return our names of the heads in use and their rows, by their published number."""
        found = {
            level: (f"heads.{level}", self.codes + (level == 0)) for level in range(self.levels)
        }
        if self.masked_level_0:
            found[self.levels] = "masked_head", self.codes
            found[self.levels + 2] = "length_head", LENGTH_TOKENS
        return found

    def unused_heads(self) -> dict[int, int | None]:
        """Return the indices of the heads of other tasks, and their rows if known."""
        speech_to_text = self.levels + self.masked_level_0
        return {speech_to_text: self.phonemes, self.levels + 1 + 2 * self.masked_level_0: None}


def find_layout(tensors: Mapping[str, Tensor], source: str) -> FileLayout:
    """Detect the layout of published tensors, and check them all.

    Raises CheckpointError if it is neither layout, or a tensor does not belong to it.
    """
    if "proms_emb.embs.0.weight" in tensors:
        raise CheckpointError(f"{source}: this is vall-e version 7 (all levels at once), not 5")
    if "resps_emb.embeddings.0.weight" not in tensors:
        some = ", ".join(sorted(tensors)[:3]) or "none at all"
        raise CheckpointError(f"{source}: tensors of no known layout: {some}")
    levels, width = matrix_shape(tensors, "rvq_l_emb.weight", source)
    masked = f"resps_emb.embeddings.{levels}.weight" in tensors
    layout = FileLayout(
        name="ar+nar-len" if masked else "ar+nar",
        width=width,
        layers=len({found[1] for name in tensors if (found := _LAYER.fullmatch(name))}),
        ffn=matrix_shape(tensors, "model.layers.0.mlp.gate_proj.weight", source)[0],
        levels=levels,
        codes=matrix_shape(tensors, "resps_emb.embeddings.1.weight", source)[0],
        phonemes=matrix_shape(tensors, "text_emb.weight", source)[0],
        languages=matrix_shape(tensors, "langs_emb.weight", source)[0],
    )
    _check(layout, tensors, source)
    return layout


def rename(layout: FileLayout, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Rename checked tensors to those of `models.valle.Valle`, fusing q/k/v and gate/up."""
    ours = {
        name: torch.cat([tensors[part] for part in parts])
        for name, (parts, _) in layout.tables().items()
    }
    for number, (name, rows) in layout.heads().items():
        bias = tensors.get(f"classifiers.proj.{number}.bias")
        ours[f"{name}.bias"] = ours[f"{name}.weight"].new_zeros(rows) if bias is None else bias
    return ours


def _check(layout: FileLayout, tensors: Mapping[str, Tensor], source: str) -> None:
    where = f"{source} (layout {layout.name})"
    wanted = {part: shape for parts, shape in layout.tables().values() for part in parts}
    optional: dict[str, Shape] = {
        f"classifiers.proj.{number}.bias": (rows,) for number, (_, rows) in layout.heads().items()
    }
    for number, rows in layout.unused_heads().items():
        for part, rest in (("weight", (layout.width,)), ("bias", ())):
            name = f"classifiers.proj.{number}.{part}"
            if name in tensors:
                optional[name] = (tensors[name].shape[0] if rows is None else rows, *rest)
    unused = [name for name in tensors if _UNUSED.fullmatch(name)]
    check_tensors(tensors, wanted, where, optional=optional, ignored=unused)
    for name in sorted(tensors.keys() & (wanted | optional).keys()):
        if not tensors[name].is_floating_point():
            raise CheckpointError(f"{where}: tensor {name} holds {tensors[name].dtype}")

"""The tensors of Plachtaa/VALL-E-X and lifeiteng/vall-e: which there are, and of which shape.

Both are pre-norm stacks with LayerNorm. What cannot be folded into the stack of `models.stack` is
refused by name: see `models.checkpoints.vallex.folding`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from torch import Tensor

from models.checkpoints.files import CheckpointError, check_tensors, matrix_shape

LEVELS: Final = 8
CODES: Final = 1024
TEXT: Final = "{}_text_embedding.word_embeddings.weight"
LANGUAGE: Final = "{}_language_embedding.word_embeddings.weight"
FRAMES: Final = "ar_audio_embedding.word_embeddings.weight"
NAR_FRAMES: Final = "nar_audio_embeddings.{}.word_embeddings.weight"
STAGE: Final = "nar_stage_embeddings.{}.word_embeddings.weight"
ALPHA: Final = "{}_{}_position.alpha"
AR_HEAD: Final = "ar_predict_layer.weight"
NAR_HEAD: Final = "nar_predict_layers.{}.weight"


@dataclass(frozen=True)
class StackLayout:
    """Sizes of a stack; the number of heads is not told by its tensors."""

    width: int  # D
    layers: int
    ffn: int


@dataclass(frozen=True)
class VallexLayout:
    """Sizes of a file."""

    ar: StackLayout
    nar: StackLayout
    texts: int  # rows of the phoneme tables
    languages: int  # rows of the language tables; 0: there are none
    start_token: bool  # whether a row of its own begins the frames of level 0

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Return the shape of every tensor by its published name."""
        found: dict[str, tuple[int, ...]] = {}
        for side, stack in (("ar", self.ar), ("nar", self.nar)):
            width = stack.width
            found[TEXT.format(side)] = (self.texts, width)
            if self.languages:
                found[LANGUAGE.format(side)] = (self.languages, width)
            for kind in ("text", "audio"):
                found[ALPHA.format(side, kind)] = (1,)
            found |= _norm(f"{side}_decoder.norm", width, adaptive=side == "nar")
            for layer in range(stack.layers):
                found |= _block(f"{side}_decoder.layers.{layer}", stack, adaptive=side == "nar")
        width = self.nar.width
        found[FRAMES] = (CODES + 1 + self.start_token, self.ar.width)
        found[AR_HEAD] = (CODES + 1, self.ar.width)
        for level in range(LEVELS):
            found[NAR_FRAMES.format(level)] = (CODES + (level == 0), width)
        for stage in range(LEVELS - 1):
            found[NAR_HEAD.format(stage)] = (CODES, width)
            found[STAGE.format(stage)] = (1, width)
        return found


def _block(name: str, stack: StackLayout, *, adaptive: bool) -> dict[str, tuple[int, ...]]:
    width = stack.width
    ffn = stack.ffn
    return {
        f"{name}.self_attn.in_proj_weight": (3 * width, width),
        f"{name}.self_attn.in_proj_bias": (3 * width,),
        f"{name}.self_attn.out_proj.weight": (width, width),
        f"{name}.self_attn.out_proj.bias": (width,),
        f"{name}.linear1.weight": (ffn, width),
        f"{name}.linear1.bias": (ffn,),
        f"{name}.linear2.weight": (width, ffn),
        f"{name}.linear2.bias": (width,),
        **_norm(f"{name}.norm1", width, adaptive=adaptive),
        **_norm(f"{name}.norm2", width, adaptive=adaptive),
    }


def _norm(name: str, width: int, *, adaptive: bool) -> dict[str, tuple[int, ...]]:
    if not adaptive:
        return {f"{name}.weight": (width,), f"{name}.bias": (width,)}
    return {
        f"{name}.project_layer.weight": (2 * width, width),
        f"{name}.project_layer.bias": (2 * width,),
        f"{name}.norm.weight": (width,),
        f"{name}.norm.bias": (width,),
    }


def is_this_family(names: Mapping[str, object]) -> bool:
    """Return whether tensors of such names are of this family."""
    return TEXT.format("ar") in names or any(name.startswith("ar_decoder.") for name in names)


def vallex_layout(tensors: Mapping[str, Tensor], source: str) -> VallexLayout:
    """Return the sizes of published tensors, and check them all.

    Raises CheckpointError if the model cannot be folded, or a tensor does not belong to it.
    """
    reasons = {
        "multihead_attn": "it is VALL-F, whose layers attend to the text by themselves",
        "_prenet.": "its prenets (add_prenet) are no part of the stack here",
    }
    for part, why in reasons.items():
        if found := next((name for name in sorted(tensors) if part in name), None):
            raise CheckpointError(f"{source}: {why} (tensor {found}), so it cannot be loaded")
    if "ar_decoder.norm.weight" not in tensors:
        raise CheckpointError(
            f"{source}: it norms behind each residual (norm_first is false: there is no"
            " ar_decoder.norm), which cannot be folded into the stack here"
        )
    languages = tensors.get(LANGUAGE.format("ar"))
    layout = VallexLayout(
        ar=_stack(tensors, "ar", source),
        nar=_stack(tensors, "nar", source),
        texts=matrix_shape(tensors, TEXT.format("ar"), source)[0],
        languages=0 if languages is None else len(languages),
        start_token=matrix_shape(tensors, FRAMES, source)[0] == CODES + 2,
    )
    check_tensors(tensors, layout.shapes(), source)
    for name, tensor in tensors.items():
        if not tensor.is_floating_point():
            raise CheckpointError(f"{source}: tensor {name} holds {tensor.dtype}")
    return layout


def _stack(tensors: Mapping[str, Tensor], side: str, source: str) -> StackLayout:
    start = f"{side}_decoder.layers."
    layers = {name.split(".")[2] for name in tensors if name.startswith(start)}
    return StackLayout(
        width=matrix_shape(tensors, TEXT.format(side), source)[1],
        layers=len(layers),
        ffn=matrix_shape(tensors, f"{start}0.linear1.weight", source)[0],
    )

"""LayerNorm, adaptive norms and languages folded into a stack of RMS norms with biases.

Exact in real arithmetic. An adaptive norm is ``a * LayerNorm(x) + c``, with ``a`` and ``c`` a
projection of a vector that is constant for each level: it is a plain norm of each level. A norm's
bias goes into the bias of what follows, ``W bias + b``. LayerNorm is the RMS norm of a centred
vector, so everything that is written to the residual stream is centred here, once. The vector of a
language goes into the rows of its phonemes. All of it is computed in float64.
"""

from collections.abc import Mapping

import torch
from torch import Tensor

from models.checkpoints.vallex.layout import (
    ALPHA,
    AR_HEAD,
    FRAMES,
    LANGUAGE,
    LEVELS,
    NAR_FRAMES,
    NAR_HEAD,
    STAGE,
    TEXT,
    VallexLayout,
)
from models.config import ModelConfig

Tensors = Mapping[str, Tensor]


def folded(tensors: Tensors, layout: VallexLayout, config: ModelConfig) -> dict[str, Tensor]:
    """Return the tensors of `models.valle.Valle` of checked published ones.

    Matrices that all levels share are one tensor under several names.
    """
    rows = config.phoneme_rows
    ours = {
        "phonemes.weight": _texts(tensors, "ar", rows),
        "nar_phonemes.weight": _texts(tensors, "nar", rows),
        "languages.weight": torch.zeros(0, layout.ar.width),
        "level.weight": torch.zeros(0, layout.ar.width),
        "separator": torch.zeros(layout.ar.width),
        "response.0.weight": _centred(tensors[FRAMES], 1),
    }
    tables = LEVELS if config.prompt_sums == "all" else LEVELS - 1
    for level in range(tables):
        table = tensors[NAR_FRAMES.format(level)][: config.codes]
        ours[f"response.{level + 1}.weight"] = _centred(table, 1)
    ours |= _written(tensors, "ar", layout.ar.layers, ["transformer"])
    ours |= _read(tensors, "ar", layout.ar.layers, "transformer", tensors[AR_HEAD], "heads.0")
    stacks = [f"nar_stacks.{stage}" for stage in range(LEVELS - 1)]
    ours |= _written(tensors, "nar", layout.nar.layers, stacks)
    for stage, stack in enumerate(stacks):
        plain = _of_stage(tensors, stage)
        head = tensors[NAR_HEAD.format(stage)]
        ours |= _read(plain, "nar", layout.nar.layers, stack, head, f"heads.{stage + 1}")
    return ours


def _texts(tensors: Tensors, side: str, rows: int) -> Tensor:
    """Return the centred rows of phonemes, those of each language behind those of another."""
    table = tensors[TEXT.format(side)][:rows].double()
    languages = tensors.get(LANGUAGE.format(side))
    if languages is not None:
        table = (languages.double()[:, None] + table).flatten(0, 1)
    return _centred(table, 1)


def _written(tensors: Tensors, side: str, layers: int, stacks: list[str]) -> dict[str, Tensor]:
    """Return what is the same in each of several stacks: what they write, and their matrices."""
    alphas = [tensors[ALPHA.format(side, kind)].float() for kind in ("audio", "text")]
    same = {"entry.scales": torch.cat(alphas)}
    for layer in range(layers):
        theirs = f"{side}_decoder.layers.{layer}"
        block = f"blocks.{layer}"
        for own, name in (
            ("attention.out", "self_attn.out_proj"),
            ("feed_forward.down", "linear2"),
        ):
            for part in ("weight", "bias"):
                same[f"{block}.{own}.{part}"] = _centred(tensors[f"{theirs}.{name}.{part}"], 0)
        same[f"{block}.attention.qkv.weight"] = tensors[
            f"{theirs}.self_attn.in_proj_weight"
        ].float()
        same[f"{block}.feed_forward.gate_up.weight"] = tensors[f"{theirs}.linear1.weight"].float()
    return {f"{stack}.{name}": tensor for stack in stacks for name, tensor in same.items()}


def _read(
    tensors: Tensors, side: str, layers: int, stack: str, head: Tensor, own_head: str
) -> dict[str, Tensor]:
    """Return the gains of one stack, and the biases of what follows its norms."""
    decoder = f"{side}_decoder"
    last = f"{side}_decoder.norm"
    ours = {
        f"{stack}.norm.weight": tensors[f"{last}.weight"].float(),
        f"{own_head}.weight": head.float(),
        f"{own_head}.bias": (head.double() @ tensors[f"{last}.bias"].double()).float(),
    }
    for layer in range(layers):
        theirs = f"{decoder}.layers.{layer}"
        block = f"{stack}.blocks.{layer}"
        for norm, own, linear, name in (
            ("norm1", "attention_norm", "attention.qkv", "self_attn.in_proj_"),
            ("norm2", "feed_forward_norm", "feed_forward.gate_up", "linear1."),
        ):
            matrix, bias = (tensors[f"{theirs}.{name}{part}"] for part in ("weight", "bias"))
            moved = matrix.double() @ tensors[f"{theirs}.{norm}.bias"].double()
            ours[f"{block}.{own}.weight"] = tensors[f"{theirs}.{norm}.weight"].float()
            ours[f"{block}.{linear}.bias"] = (bias.double() + moved).float()
    return ours


def _of_stage(tensors: Tensors, stage: int) -> dict[str, Tensor]:
    """Return the tensors with the adaptive norms as the plain ones that they are in a stage."""
    vector = tensors[STAGE.format(stage)][0].double()
    found = dict(tensors)
    for name in tensors:
        if name.endswith(".project_layer.weight"):
            norm = name.removesuffix(".project_layer.weight")
            bias = tensors[f"{norm}.project_layer.bias"].double()
            gain, shift = (tensors[name].double() @ vector + bias).chunk(2)
            found[f"{norm}.weight"] = gain * tensors[f"{norm}.norm.weight"].double()
            found[f"{norm}.bias"] = shift + gain * tensors[f"{norm}.norm.bias"].double()
    return found


def _centred(tensor: Tensor, dim: int) -> Tensor:
    """Return a tensor less its mean over one dimension, in float32."""
    exact = tensor.double()
    return (exact - exact.mean(dim, keepdim=True)).float()

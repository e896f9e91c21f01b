"""LoRA updates of a published checkpoint, merged into its matrices when it is converted.

``W' = W + alpha / rank * B A`` (Hu et al. 2021, arXiv:2106.09685), so inference costs the same.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from models.checkpoints.files import CheckpointError, read_file
from models.checkpoints.published.metadata import parse_metadata

_PART = re.compile(r"(?P<layer>.+?)(?:\.parametrizations\.weight\.0)?\.lora_(?P<side>[AB])")


def merge(tensors: Mapping[str, Tensor], path: Path) -> dict[str, Tensor]:
    """Merge a LoRA file into a checkpoint's tensors, under their published names, as float32.

    Names in the file may be relative to the stack or to the whole model. Raises CheckpointError
    if it is damaged, for some levels only, or of other shapes.
    """
    parts, metadata = read_file(path)
    config = parse_metadata(metadata).get("config")
    config = config if isinstance(config, dict) else {}
    if config.get("rvq_levels"):
        raise CheckpointError(f"{path}: made for levels {config['rvq_levels']} alone, not for all")
    merged = dict(tensors)
    for layer, (down, up) in _pairs(parts, path).items():
        name = _target(layer, tensors, path)
        weight = tensors[name]
        rank = down.shape[0] if down.ndim == 2 else 0
        if (*up.shape, *down.shape) != (weight.shape[0], rank, rank, weight.shape[1]):
            raise CheckpointError(
                f"{path}: {layer}.lora_A has shape {list(down.shape)} and lora_B"
                f" {list(up.shape)}, expected [rank, {weight.shape[1]}] and"
                f" [{weight.shape[0]}, rank] of {name}"
            )
        scale = _scale(config, rank, path)
        merged[name] = weight.float() + scale * (up.float() @ down.float())
    return merged


def _pairs(parts: Mapping[str, Tensor], path: Path) -> dict[str, tuple[Tensor, Tensor]]:
    """Return the matrices A ``[rank, in]`` and B ``[out, rank]`` of each layer of a file."""
    sides: dict[str, dict[str, Tensor]] = {}
    for name, tensor in parts.items():
        if not (found := _PART.fullmatch(name)):
            raise CheckpointError(f"{path}: tensor {name} is no part of a LoRA")
        sides.setdefault(found["layer"], {})[found["side"]] = tensor
    pairs: dict[str, tuple[Tensor, Tensor]] = {}
    for layer, both in sides.items():
        if len(both) < 2:
            raise CheckpointError(f"{path}: {layer} has lora_{next(iter(both))} alone")
        pairs[layer] = both["A"], both["B"]
    if not pairs:
        raise CheckpointError(f"{path} holds no tensors")
    return pairs


def _target(layer: str, tensors: Mapping[str, Tensor], path: Path) -> str:
    """Return the name of the tensor that a layer's update applies to."""
    whole = f".{layer}.weight"
    names = [name for name in tensors if f".{name}".endswith(whole)]
    if len(names) != 1:
        raise CheckpointError(f"{path}: {layer} names {len(names)} tensors of the checkpoint")
    return names[0]


def _scale(config: Mapping[str, Any], rank: int, path: Path) -> float:
    alpha, said = config.get("alpha", rank), config.get("rank", rank)
    if said != rank:
        raise CheckpointError(f"{path}: metadata says rank {said}, the tensors have {rank}")
    if not isinstance(alpha, int | float):
        raise CheckpointError(f"{path}: metadata says alpha {alpha!r}")
    return alpha / rank

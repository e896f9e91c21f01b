"""EnCodec's published tensors: weight norm folded, codebooks stacked, names otherwise as ours.

Files are the business of others: what comes in here is a state dict, whatever it was read from.
"""

import re
from collections.abc import Mapping

import torch
from torch import Tensor

from models.checkpoints.files import CheckpointError, fill
from models.codec import Codec
from models.config import CodecConfig

_CODEBOOK = re.compile(r"quantizer\.vq\.layers\.(\d+)\._codebook\.(\w+)")


def codec_from_encodec(tensors: Mapping[str, Tensor], config: CodecConfig) -> Codec:
    """Return a codec with the weights of an `EncodecModel`'s state dict.

    Published models have 32 codebooks, of which the bandwidth chooses; the config's levels are
    kept.

    Raises:
        CheckpointError: A tensor is missing, unknown or of another shape.
    """
    folded: dict[str, Tensor] = {}
    books: dict[int, Tensor] = {}
    for name, tensor in tensors.items():
        if found := _CODEBOOK.fullmatch(name):
            # the moving averages beside `embed` are of use in training only
            if found[2] == "embed":
                books[int(found[1])] = tensor
        elif name.endswith(".weight_g"):
            stem = name.removesuffix(".weight_g")
            direction = tensors.get(f"{stem}.weight_v")
            if direction is None:
                raise CheckpointError(f"encodec: tensor {stem}.weight_v is missing")
            # w = g v / |v| over all but the first dimension (Salimans and Kingma 2016)
            length = direction.flatten(1).norm(dim=1).view(-1, *[1] * (direction.ndim - 1))
            folded[f"{stem}.weight"] = tensor * direction / length
        elif not name.endswith(".weight_v"):
            folded[name] = tensor
    if sorted(books) != list(range(len(books))) or len(books) < config.levels:
        raise CheckpointError(
            f"encodec: codebooks {sorted(books)} found, {config.levels} levels wanted"
        )
    folded["quantizer.codebooks"] = torch.stack([books[level] for level in range(config.levels)])
    codec = Codec(config)
    fill(codec, folded, "encodec")
    return codec.eval().requires_grad_(False)

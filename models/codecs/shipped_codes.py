"""The codes of a voice that ships with a model, stored beside its audio.

An encoder of floats rounds differently on different processors, and one code that falls to the
other side changes all that is spoken after it. Codes that were computed once are the same
everywhere. They belong to one codec, named by its digest; under another the audio is encoded.
"""

from hashlib import sha256
from pathlib import Path
from typing import Final

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

SUFFIX: Final = ".codes.safetensors"


class ShippedCodesError(ValueError):
    """A file of codes is damaged; the message names it."""


def codec_digest(codec: nn.Module) -> str:
    """Return the SHA-256 of a codec's tensors, by name, as they were loaded."""
    digest = sha256()
    for name, tensor in sorted(codec.state_dict().items()):
        digest.update(name.encode())
        digest.update(tensor.detach().float().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()


def write_codes(path: Path, codes: Tensor, digest: str) -> None:
    """Write codes ``[T, K]`` of the codec with some `codec_digest`."""
    save_file({"codes": codes.to(torch.int16).cpu().contiguous()}, path, {"codec": digest})
    path.chmod(0o644)


def read_codes(path: Path, digest: str) -> Tensor | None:
    """Return the codes ``[T, K]`` int64 in a file, or None if they are another codec's.

    Raises:
        ShippedCodesError: The file cannot be read.
    """
    try:
        with safe_open(path, "pt") as file:
            if (file.metadata() or {}).get("codec") != digest:
                return None
            codes: Tensor = file.get_tensor("codes")
    except (OSError, SafetensorError) as error:
        raise ShippedCodesError(f"{path}: {error}") from error
    return codes.long()

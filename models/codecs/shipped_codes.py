"""Files of codes that ship with a model, such as those of its voices.

A float encoder rounds differently on different processors, and a single other code in a prompt
changes everything that is generated after it. Stored codes are the same everywhere. They belong to
one codec, identified by its digest; with another codec the audio must be encoded.
"""

from hashlib import sha256
from pathlib import Path
from typing import Final

import torch
from torch import Tensor, nn

SUFFIX: Final = ".codes.safetensors"


def codec_digest(codec: nn.Module) -> str:
    """Return the hexadecimal SHA-256 of a codec's state dict: names and float32 values."""
    digest = sha256()
    for name, tensor in sorted(codec.state_dict().items()):
        digest.update(name.encode())
        digest.update(tensor.detach().float().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()


def write_codes(path: Path, codes: Tensor, digest: str) -> None:
    """Write codes ``[T, K]`` with the `codec_digest` of their codec."""
    from safetensors.torch import save_file

    save_file({"codes": codes.to(torch.int16).cpu().contiguous()}, path, {"codec": digest})
    path.chmod(0o644)


def read_codes(path: Path, digest: str) -> Tensor | None:
    """Return the codes ``[T, K]`` int64 of a file, or None if they belong to another codec.

    Raises ValueError, which names the file, if it cannot be read.
    """
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, "pt") as file:
            if (file.metadata() or {}).get("codec") != digest:
                return None
            codes: Tensor = file.get_tensor("codes")
    except (OSError, SafetensorError) as error:
        raise ValueError(f"{path}: {error}") from error
    return codes.long()

"""The `encodec` package as an oracle.

encodec 0.1.1 imports torchaudio for file helpers that no test uses; torchaudio's wheel needs CUDA
libraries and cannot be imported beside a CPU-only torch. This is the one place with a stand-in.
"""

import importlib
import sys
import warnings
from types import ModuleType
from typing import Any

import torch


def import_encodec() -> ModuleType:
    """Return the package `encodec`, with a minimal stand-in where torchaudio does not import."""
    try:
        importlib.import_module("torchaudio")
    except (ImportError, OSError):
        for name in ("torchaudio", "torchaudio.transforms"):
            sys.modules.setdefault(name, ModuleType(name))
        sys.modules["torchaudio"].transforms = sys.modules["torchaudio.transforms"]  # type: ignore[attr-defined]
    return importlib.import_module("encodec")


def random_encodec() -> Any:
    """Return EnCodec at 24 kHz and 6 kbps with the official shapes and random weights."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # its use of torch's old weight norm
        encodec = import_encodec()
        torch.manual_seed(0)
        model: Any = encodec.EncodecModel._get_model(
            target_bandwidths=[1.5, 3, 6, 12, 24], sample_rate=24_000, channels=1
        )
    model.set_target_bandwidth(6.0)
    for layer in model.quantizer.vq.layers:
        layer._codebook.embed.normal_(0, 0.2)
        layer._codebook.inited.fill_(1)
    return model.eval()

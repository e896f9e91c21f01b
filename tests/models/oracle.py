"""The `encodec` package as an oracle.

encodec 0.1.1 imports torchaudio for file helpers that no test uses; torchaudio's wheel needs CUDA
libraries and cannot be imported beside a CPU-only torch. This is the one place with a stand-in.
"""

import importlib
import sys
from types import ModuleType


def import_encodec() -> ModuleType:
    """Return the package `encodec`, with a minimal stand-in where torchaudio does not import."""
    try:
        importlib.import_module("torchaudio")
    except (ImportError, OSError):
        for name in ("torchaudio", "torchaudio.transforms"):
            sys.modules.setdefault(name, ModuleType(name))
        sys.modules["torchaudio"].transforms = sys.modules["torchaudio.transforms"]  # type: ignore[attr-defined]
    return importlib.import_module("encodec")

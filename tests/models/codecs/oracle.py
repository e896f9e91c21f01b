"""The packages `encodec` and `vocos` as oracles.

encodec 0.1.1 and vocos 0.1.0 import torchaudio for helpers that no test uses; torchaudio's wheel
needs CUDA libraries and cannot be imported beside a CPU-only torch. This is the one place with a
stand-in.
"""

import importlib
import sys
import warnings
from types import ModuleType
from typing import Any

import torch


def _without_torchaudio(package: str) -> ModuleType:
    """Return a package, with a minimal stand-in where torchaudio does not import."""
    try:
        importlib.import_module("torchaudio")
    except (ImportError, OSError):
        for name in ("", ".transforms", ".functional", ".functional.functional"):
            sys.modules.setdefault(f"torchaudio{name}", ModuleType(f"torchaudio{name}"))
        unused: Any = sys.modules["torchaudio.functional.functional"]
        unused._hz_to_mel = unused._mel_to_hz = None
        torchaudio: Any = sys.modules["torchaudio"]
        torchaudio.transforms = sys.modules["torchaudio.transforms"]
    return importlib.import_module(package)


def import_encodec() -> ModuleType:
    """Return the package `encodec`."""
    return _without_torchaudio("encodec")


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


def random_vocos() -> Any:
    """Return Vocos for EnCodec with the published shapes and random weights."""
    package = _without_torchaudio("vocos")
    features: Any = importlib.import_module("vocos.feature_extractors")
    models: Any = importlib.import_module("vocos.models")
    heads: Any = importlib.import_module("vocos.heads")
    torch.manual_seed(0)
    backbone = models.VocosBackbone(128, 384, 1152, 8, adanorm_num_embeddings=4)
    for name, tensor in backbone.state_dict().items():
        if "norm" in name or "gamma" in name:  # else all bit rates are one, and blocks do little
            tensor.copy_(torch.rand_like(tensor) + 0.5)
    # Its own constructor would fetch EnCodec's weights.
    extractor = features.EncodecFeatures.__new__(features.EncodecFeatures)
    torch.nn.Module.__init__(extractor)
    extractor.encodec = random_encodec()
    books = [layer.codebook for layer in extractor.encodec.quantizer.vq.layers[:16]]
    extractor.codebook_weights = torch.nn.Parameter(torch.cat(books), requires_grad=False)
    head = heads.ISTFTHead(384, 1280, 320, padding="same")
    return package.Vocos(extractor, backbone, head).eval()

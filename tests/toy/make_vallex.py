"""Write a model folder in the layout of Plachtaa/VALL-E-X, of small random weights, for tests.

Its tensors are made under their published names and folded, as those of a published file are; the
folder then has the folded model, as a conversion writes it, and a codec of random weights.
"""

import json
from pathlib import Path

import numpy as np
import soundfile
import torch
from safetensors.torch import save_file

from models.checkpoints.builtin import save_codec, save_lm
from models.checkpoints.vallex.layout import StackLayout, VallexLayout
from models.checkpoints.vallex.load import load_vallex
from models.codecs.encodec import Encodec
from models.config import CodecConfig

LAYOUT = VallexLayout(
    StackLayout(32, 2, 64), StackLayout(32, 2, 64), texts=2048, languages=3, start_token=True
)
CODEC = CodecConfig(filters=2, dimension=8, lstm_layers=1, pad_mode="constant")
TRANSCRIPT = "Toy."


def make_vallex(folder: Path, seed: int = 0) -> Path:
    """Write the model into ``folder`` and return it; the same seed gives the same weights."""
    generator = torch.Generator().manual_seed(seed)
    tensors = {
        name: torch.randn(shape, generator=generator) / shape[-1] ** 0.5
        for name, shape in LAYOUT.shapes().items()
    }
    for name, tensor in tensors.items():
        # As after a training: gains near 1 and small biases, or every frame has the same codes.
        if "self_attn" in name:
            tensor.mul_(4.0)
        elif tensor.ndim == 1 or "project_layer" in name:
            tensor.mul_(0.1)
        if name.endswith(("norm.weight", "norm1.weight", "norm2.weight", "alpha")):
            tensor.add_(1.0)
        elif name.endswith("project_layer.bias"):
            tensor[: len(tensor) // 2].add_(1.0)
    file = folder / "published" / "model.safetensors"
    file.parent.mkdir(parents=True)
    save_file(tensors, file)
    file.with_name("settings.json").write_text(json.dumps({"nhead": 4}))
    model = load_vallex(file)
    save_lm(folder, model.config, model.state_dict())
    codec = Encodec(CODEC)
    with torch.no_grad():
        for name, tensor in codec.named_parameters():
            scale = (2.0 / tensor[0].numel()) ** 0.5 if tensor.ndim > 1 else 0.0
            if tensor.ndim > 1 or "bias" in name:
                tensor.normal_(0, scale, generator=generator)
        codec.quantizer.codebooks.normal_(0, 0.3, generator=generator)
    save_codec(folder, codec)
    voices = folder / "voices"
    voices.mkdir()
    noise = np.random.default_rng(seed).normal(0, 0.05, 24_000)
    for name, language in (("toy", "en"), ("yuki", "ja")):
        soundfile.write(voices / f"{name}.flac", noise, CODEC.sample_rate_hz)
        card = {"language": language, "transcript": TRANSCRIPT if language == "en" else "はい。"}
        (voices / f"{name}.json").write_text(json.dumps(card))
    return folder

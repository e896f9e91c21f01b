"""Write a model folder of random weights, some 0.2 M parameters, for tests.

It makes noise, not speech, but through every part of the real thing: eight levels, grouped heads,
a voice prompt, zero padding. The logits are spread far enough for samplers to have an effect.
"""

from pathlib import Path
from typing import Any

import numpy as np
import soundfile
import torch

from models.checkpoints.builtin import save_codec, save_lm
from models.codecs.encodec import Encodec
from models.config import CodecConfig, ModelConfig
from models.text import ENGLISH_SYMBOLS
from models.valle import Valle

MODEL = ModelConfig(
    name="toy",
    codes=512,
    width=16,
    layers=2,
    heads=4,
    kv_heads=2,
    ffn=32,
    phonemes=ENGLISH_SYMBOLS,
    max_prompt_frames=38,
    has_null_condition=True,
    nar_has_null_condition=True,
)
CODEC = CodecConfig(codes=512, filters=2, dimension=8, lstm_layers=1, pad_mode="constant")


def make(folder: Path, seed: int = 0, config: ModelConfig = MODEL) -> Path:
    """Write a toy model into ``folder`` and return it; the same seed gives the same weights."""
    generator = torch.Generator().manual_seed(seed)
    model, codec = Valle(config), Encodec(CODEC)
    with torch.no_grad():
        for name, tensor in [*model.named_parameters(), *codec.named_parameters()]:
            if tensor.ndim > 1 or name == "separator":
                scale = 1.0 if tensor.ndim == 1 else (2.0 / tensor[0].numel()) ** 0.5
                tensor.normal_(0, scale, generator=generator)
            elif "bias" in name:
                tensor.zero_()
        codec.quantizer.codebooks.normal_(0, 0.3, generator=generator)
    save_lm(folder, config, model.state_dict())
    save_codec(folder, codec)
    voices = folder / "voices"
    voices.mkdir(exist_ok=True)
    noise = np.random.default_rng(seed).normal(0, 0.05, 12_000)
    soundfile.write(voices / "toy.flac", noise, CODEC.sample_rate_hz)
    (voices / "toy.json").write_text('{"language": "en", "transcript": "Toy."}\n')
    return folder


def make_speaking(folder: Path) -> dict[str, Any]:
    """Write a toy model that says something whatever the seed; return the settings that load it.

    For ways to ask that have no seed: the toy's stop is as likely as any code, also as the first.
    """
    model = make(folder / "model", config=MODEL.model_copy(update={"preset": "speaking"}))
    presets = folder / "presets.json"
    presets.write_text('{"presets": {"speaking": {"min_frames": 16}}}')
    return {"model": str(model), "presets": str(presets)}

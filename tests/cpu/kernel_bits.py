"""Run in a process of its own: print a hash of what the kernels and the stack compute.

With it, how many golden requests of the built-in model were spoken, and how many in other codes.

python -m tests.cpu.kernel_bits THREADS
"""

import sys
from hashlib import sha256

import numpy as np
import torch

from app.engine.backend.golden import compare, read_golden
from app.engine.backend.synthesizer import Synthesizer
from app.settings import BUILTIN_MODEL, Settings
from models.config import ModelConfig
from models.int8.quantized import quantize_linears
from models.valle import Valle

CONFIG = ModelConfig(
    width=96, layers=2, heads=4, kv_heads=2, ffn=130, codes=64, phonemes=tuple("abc")
)


@torch.inference_mode()
def computed() -> bytes:
    """Return the bytes of logits after prefixes and steps of many lengths, both activations."""
    # Torch samples other normal numbers on another processor.
    generator = np.random.default_rng(0)

    def normal(*shape: int) -> torch.Tensor:
        return torch.from_numpy(generator.standard_normal(shape, np.float32))

    parts = []
    for activation in ("gelu", "silu"):
        model = Valle(CONFIG.model_copy(update={"activation": activation}))
        for parameter in model.parameters():
            parameter.copy_(normal(*parameter.shape) * 0.2)
        quantize_linears(model)
        lengths = [1, 2, 15, 16, 17, 63, 64, 65, 130, 200]
        cache = model.new_cache(len(lengths), 256)
        for slot, length in enumerate(lengths):
            held = normal(length, CONFIG.width)
            counted = torch.arange(length)
            hidden = model.transformer.extend(held, counted, cache, slot, counted)[0]
            parts.append(model.logits(hidden[-1:], 0))
        for _ in range(8):
            fed = normal(len(lengths), CONFIG.width)
            positions = torch.tensor([cache.lengths[slot] for slot in range(len(lengths))])
            hidden = model.transformer.step(fed, positions, cache, range(len(lengths)))[0]
            parts.append(model.logits(hidden, 0))
    return b"".join(part.numpy().tobytes() for part in parts)


if __name__ == "__main__":
    settings = Settings(device="cpu", weights="int8", threads=int(sys.argv[1]))
    torch.set_num_threads(settings.threads)
    found = compare(Synthesizer.load(settings).spoken, read_golden(BUILTIN_MODEL)[::4])
    print(sha256(computed()).hexdigest(), found.spoken, found.different)

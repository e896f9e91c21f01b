"""Run in a process of its own: print a hash of what the kernels and the stack compute.

python -m tests.models.int8.kernel_bits
"""

from hashlib import sha256

import torch

from models.config import ModelConfig
from models.int8.quantized import quantize_linears
from models.valle import Valle

CONFIG = ModelConfig(
    width=96, layers=2, heads=4, kv_heads=2, ffn=130, codes=64, phonemes=tuple("abc")
)


@torch.inference_mode()
def computed() -> bytes:
    """Return the bytes of logits after prefixes and steps of many lengths, both activations."""
    generator = torch.Generator().manual_seed(0)
    parts = []
    for activation in ("gelu", "silu"):
        model = Valle(CONFIG.model_copy(update={"activation": activation}))
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.2)
        quantize_linears(model)
        lengths = [1, 2, 15, 16, 17, 63, 64, 65, 130, 200]
        cache = model.new_cache(len(lengths), 256)
        for slot, length in enumerate(lengths):
            held = torch.randn(length, CONFIG.width, generator=generator)
            counted = torch.arange(length)
            hidden = model.transformer.extend(held, counted, cache, slot, counted)[0]
            parts.append(model.logits(hidden[-1:], 0))
        for _ in range(8):
            fed = torch.randn(len(lengths), CONFIG.width, generator=generator)
            positions = torch.tensor([cache.lengths[slot] for slot in range(len(lengths))])
            hidden = model.transformer.step(fed, positions, cache, range(len(lengths)))[0]
            parts.append(model.logits(hidden, 0))
    return b"".join(part.numpy().tobytes() for part in parts)


if __name__ == "__main__":
    print(sha256(computed()).hexdigest())

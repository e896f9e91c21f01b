"""What the AR benchmark compares: loops that must sample the same codes."""

import pytest
import torch

from lab.benchmarks.model.ar import PREFIX, check, ours, variants
from models.config import ModelConfig
from models.int8.quantized import quantize_linears
from models.valle import Valle

CONFIG = ModelConfig(
    width=32, layers=2, heads=4, kv_heads=2, ffn=64, codes=64, phonemes=("a",), max_prompt_frames=0
)


def model() -> Valle:
    torch.manual_seed(0)
    model = Valle(CONFIG).eval().requires_grad_(False)
    for parameter in model.parameters():
        if parameter.ndim == 2:
            torch.nn.init.normal_(parameter, std=0.3)
    torch.nn.init.zeros_(model.heads[0].get_parameter("bias"))
    return model


@pytest.mark.slow
def test_every_variant_draws_the_same_greedy_codes_for_every_stream() -> None:
    quantized = model()
    quantize_linears(quantized)
    prefixes = torch.randn(3, PREFIX, CONFIG.width)
    runs = variants(model(), quantized)
    expected, _ = ours(model(), prefixes, 24, greedy=True, capacity=256)
    assert all(len(set(codes.tolist())) > 5 for codes in expected)
    for name, run in runs.items():
        codes, _ = run(prefixes, 24, greedy=True)
        assert codes.shape == expected.shape
        if name != "int8":
            assert torch.equal(codes, expected)
    check(runs, prefixes)

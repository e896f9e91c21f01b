"""What the AR benchmark compares: three loops that must draw the same codes."""

import torch

from benchmarks.ar import PREFIX, as_llama, ours, transformers_generate, uncached
from models.config import ModelConfig
from models.valle import Valle

CONFIG = ModelConfig(
    width=32, layers=2, heads=4, kv_heads=2, ffn=48, codes=64, phonemes=("a",), max_prompt_frames=0
)


def test_our_loop_the_uncached_one_and_transformers_draw_the_same_greedy_codes() -> None:
    torch.manual_seed(0)
    model = Valle(CONFIG).eval().requires_grad_(False)
    for parameter in model.parameters():
        if parameter.ndim == 2:
            torch.nn.init.normal_(parameter, std=0.3)
    torch.nn.init.zeros_(model.heads[0].get_parameter("bias"))
    prefix = torch.randn(PREFIX, CONFIG.width)
    codes, _ = ours(model, prefix, 60, greedy=True, capacity=256)
    assert len(set(codes)) > 5
    assert codes == uncached(model, prefix, 60, greedy=True)[0]
    assert codes == transformers_generate(as_llama(model), prefix, 60, greedy=True)[0]

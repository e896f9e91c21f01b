"""Models of integers: nothing is left in floats, and the logits are nearly the same."""

import copy

import pytest
import torch
from torch import nn

from app.settings import BUILTIN_MODEL
from models.checkpoints.builtin import load_lm
from models.config import ModelConfig
from models.int8.cache import Int8Cache
from models.int8.linear import Int8Linear
from models.int8.quantized import is_quantized, quantize_linears
from models.stack.cache import KVCache
from models.valle import Valle

CONFIG = ModelConfig(width=256, layers=2, heads=4, kv_heads=2, ffn=896, phonemes=("a",))


def test_no_float_linear_is_left_in_a_model() -> None:
    model = Valle(CONFIG)
    count = sum(isinstance(module, nn.Linear) for module in model.modules())
    assert not is_quantized(model)
    quantize_linears(model)
    assert is_quantized(model)
    kinds = [type(module) for module in model.modules()]
    assert nn.Linear not in kinds
    assert kinds.count(Int8Linear) == count == 4 * CONFIG.layers + CONFIG.levels


def test_the_cache_of_a_model_of_integers_is_of_integers() -> None:
    model = Valle(CONFIG)
    assert isinstance(model.new_cache(2, 10), KVCache)
    quantize_linears(model)
    assert isinstance(model.new_cache(2, 10), Int8Cache)


@pytest.mark.weights
@torch.inference_mode()
def test_the_builtin_voice_has_nearly_the_same_logits() -> None:
    model = load_lm(BUILTIN_MODEL)
    quantized = copy.deepcopy(model)
    quantize_linears(quantized)
    generator = torch.Generator().manual_seed(0)
    codes = torch.randint(model.config.codes, (60, model.config.levels), generator=generator)
    for level in range(1, model.config.levels):
        prefix = model.prefix([1, 20, 30, 40, 2], level)
        expected = model.nar_logits(prefix, codes, level).log_softmax(-1)
        found = quantized.nar_logits(prefix, codes, level).log_softmax(-1)
        divergence = (expected.exp() * (expected - found)).sum(-1).mean()
        assert divergence < 0.01  # nats

"""The loss that the benchmark sums up is that of a pass over the whole."""

import copy

import numpy as np
import pytest
import torch

from app.engine.memory import make_pool
from lab.benchmarks.model.int8_loss import loss
from lab.training.lm.codes import CodedUtterance
from lab.training.lm.rows import Row, losses_of
from models.checkpoints.builtin import load_lm
from models.int8.quantized import quantize_linears


@pytest.mark.parametrize("level", [0, 1, 7])
def test_all_lose_what_a_pass_over_the_whole_does(toy, level: int) -> None:
    model = load_lm(toy)
    quantized = copy.deepcopy(model)
    quantize_linears(quantized)
    codes = np.random.default_rng(0).integers(0, 512, (40, 8)).astype(np.int16)
    utterance = CodedUtterance("Hi.", "hai.", codes, "a")
    prompt = torch.from_numpy(codes[:10].astype(np.int64))
    row = Row(utterance, level, codes[:10])
    with torch.inference_mode():
        mean, _ = losses_of(model, [row], np.random.default_rng(0))[1][level]
    count = len(codes) + (level == 0)
    found = loss(model, model.new_cache, utterance, prompt, level) / count
    assert found == pytest.approx(mean, abs=1e-3)
    pages = make_pool(model, 1 << 24, "int8")
    for one, new_cache in ((quantized, quantized.new_cache), (model, pages.new_cache)):
        other = loss(one, new_cache, utterance, prompt, level) / count
        assert other == pytest.approx(found, rel=0.05)

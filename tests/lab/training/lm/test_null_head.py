"""One row in place of two: a head learns the null condition's logits, and the model stays."""

from pathlib import Path

import numpy as np
import pytest
import torch

from lab.training.lm import null_head
from lab.training.lm.codes import CodedUtterance
from lab.training.lm.null_head import NullHeadTrainer, divergence, guided
from lab.training.lm.rows import Row, predicting
from models.config import ModelConfig
from models.text import ENGLISH_SYMBOLS
from models.valle import Valle

CONFIG = ModelConfig(
    name="toy", width=16, layers=4, heads=2, kv_heads=1, ffn=24, phonemes=ENGLISH_SYMBOLS,
    max_phonemes=100, levels=2, codes=16, max_prompt_frames=300, shared_tables=True,
    has_null_condition=True,
)  # fmt: skip


@pytest.fixture
def model() -> Valle:
    torch.manual_seed(0)
    return Valle(CONFIG).eval()


@pytest.fixture(autouse=True)
def speech(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Utterances of two speakers, and one of whom nobody knows what they say."""
    monkeypatch.setenv("VALLE_TRAINING_CACHE", str(tmp_path))
    random = np.random.default_rng(0)
    spoken = [
        CodedUtterance(
            f"number {number}", "nʌmbɚ." if number < 11 else "",
            random.integers(0, 16, (40 + number, 2)).astype(np.int16), "ab"[number % 2],
        )
        for number in range(12)
    ]  # fmt: skip
    monkeypatch.setattr(null_head, "load_codes", lambda _: {"speech": (spoken, spoken[:4])})
    monkeypatch.setattr(null_head, "load_captured", lambda _: [])
    monkeypatch.setattr(null_head, "LOG_EVERY", 2)


def test_states_of_several_depths_stand_behind_the_last_hidden_ones(model):
    codes = torch.randint(0, 16, (9, 2))
    utterance = CodedUtterance("x", "ækt", codes.numpy().astype(np.int16), "a")
    rows = [Row(utterance, 0), Row(utterance, 1)]
    plain = predicting(model, rows, [codes, codes])
    with_depths = predicting(model, rows, [codes, codes], (1, 3))
    for one, other in zip(plain, with_depths, strict=True):
        assert other.shape == (len(one), 48)
        torch.testing.assert_close(other[:, :16], one)
    last = model.transformer.norm(with_depths[0][:, 32:])
    torch.testing.assert_close(last, plain[0])
    assert not model.transformer.blocks[1]._forward_hooks


@pytest.mark.parametrize("strength", [1.0, 1.5, 2.5])
def test_the_divergence_is_none_of_the_same_logits_and_at_strength_1_whatever_the_null(strength):
    conditional, null, other = torch.randn(3, 4, 17)
    same = divergence(guided(conditional, null, strength), guided(conditional, null, strength))
    torch.testing.assert_close(same, torch.zeros(4), atol=1e-6, rtol=0)
    found = divergence(guided(conditional, null, strength), guided(conditional, other, strength))
    assert bool((found > 1e-3).all()) is (strength > 1)


@pytest.mark.slow
def test_the_head_learns_a_stopped_run_goes_on_and_the_model_stays(model, tmp_path):
    before = {name: value.clone() for name, value in model.state_dict().items()}
    whole, stopped, resumed = (NullHeadTrainer(model, 60) for _ in range(3))
    first = whole.validate()
    whole.run(tmp_path / "log", tmp_path / "whole.pt")
    after = whole.validate()
    for strength in ("1.5", "2", "2.5"):
        assert after[f"divergence_{strength}"] < 0.7 * first[f"divergence_{strength}"]
        assert first[f"divergence_{strength}"] == pytest.approx(first[f"one_row_{strength}"])
    for _ in range(30):
        stopped.train_step()
    stopped.save(tmp_path / "stopped.pt")
    resumed.load(tmp_path / "stopped.pt")
    resumed.run(tmp_path / "log", tmp_path / "stopped.pt")
    for name, value in whole.head.state_dict().items():
        assert torch.equal(value, resumed.head.state_dict()[name]), name
    for name, value in model.state_dict().items():
        assert torch.equal(value, before[name]), name

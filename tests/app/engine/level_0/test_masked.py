"""Level 0 in masked passes: the reference's own loop, and what must hold of any."""

import json
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from app.engine.level_0.masked import MaskedUtterance, predict_length
from app.engine.utterance import UtteranceInput
from models.checkpoints.published.load import Switches, load_public
from models.config import BOS_ID, EOS_ID, ModelConfig
from models.valle import Valle
from samplers.knobs.params import SamplingParams
from samplers.knobs.resolve import resolve
from tests.app.engine.decoding import decode_utterance
from tests.models.test_valle import random_model

CONFIG = ModelConfig(
    width=16,
    layers=2,
    heads=2,
    kv_heads=2,
    ffn=32,
    codes=32,
    levels=3,
    phonemes=tuple("abcdef"),
    segments=("phn", "level", "prom", "resp"),
    nar_mask="full",
    masked_level_0=True,
    has_null_condition=True,
)
IDS = [BOS_ID, 3, 5, 4, 8, EOS_ID]
KNOBS = {"preset": "vall_e", "level_0": "masked", "seed": 0, "nar_len_steps": 8}


@pytest.fixture(scope="module")
def model() -> Valle:
    return random_model(CONFIG, std=0.5)


def params(**knobs: object) -> SamplingParams:
    return resolve(SamplingParams.model_validate(KNOBS | knobs))


def draw(
    model: Valle, chosen: SamplingParams, *, max_frames: int = 40
) -> tuple[Tensor, str, list[Tensor]]:
    drawn = MaskedUtterance(model, UtteranceInput(IDS, chosen, chosen.seed or 0, 0, max_frames))
    read = passes(drawn)
    return drawn.level_0(), str(drawn.finish_reason), read


def passes(drawn: MaskedUtterance) -> list[Tensor]:
    """Return what each pass of an utterance reads."""
    read = []
    while drawn.finish_reason is None:
        read.append(drawn.step())
    return read


def test_every_pass_of_the_reference_loop(golden_valle: Path) -> None:
    folder = golden_valle / "dev"
    inputs = json.loads((folder / "inputs.json").read_text())
    meta = json.loads((folder / "meta.json").read_text())
    expected = load_file(folder / "expected.safetensors")
    model = load_public(folder / "fp32.sft", Switches("inclusive", language=True))
    prefix = model.prefix(
        inputs["phn"], 0, language=inputs["lang"], prompt=torch.tensor(inputs["prom"])
    )
    chosen = params(nar_len_steps=inputs["masked_steps"], nar_len_frames=inputs["masked_len"])
    prompt = torch.tensor(inputs["prom"])
    piece = UtteranceInput(inputs["phn"], chosen, 0, 0, 500, prompt=prompt, language=inputs["lang"])
    drawn = MaskedUtterance(model, piece)
    assert torch.equal(torch.stack(passes(drawn)), expected["masked_loop_inputs"])
    assert torch.equal(drawn.level_0(), expected["masked_loop_output"])
    assert predict_length(model, prefix) == meta["len_result"]


def test_the_first_pass_reads_masks_alone_and_the_last_leaves_none(model: Valle) -> None:
    codes, reason, read = draw(model, params(nar_len_frames=20))
    assert reason == "stop"
    assert torch.equal(read[0], torch.full((20,), CONFIG.mask_token))
    assert [int((codes == CONFIG.mask_token).sum()) for codes in read] == sorted(
        (int((codes == CONFIG.mask_token).sum()) for codes in read), reverse=True
    )
    assert codes.shape == (20,)
    assert codes.max() < CONFIG.codes


def test_what_was_drawn_stays_where_only_masked_frames_are_scored(model: Valle) -> None:
    _, _, read = draw(model, params(nar_len_frames=30, nar_len_masked_only=True))
    for before, after in pairwise(read):
        known = before != CONFIG.mask_token
        assert torch.equal(before[known], after[known])


def test_the_same_seed_draws_the_same_and_another_another(model: Valle) -> None:
    hot = {"nar_len_frames": 30, "nar_len_temperature": 1.5}
    one, again, other = (draw(model, params(seed=seed, **hot))[0] for seed in (1, 1, 2))
    assert torch.equal(one, again)
    assert not torch.equal(one, other)


def test_a_length_past_the_limit_is_cut_and_said(model: Valle) -> None:
    codes, reason, _ = draw(model, params(nar_len_frames=50), max_frames=12)
    assert (len(codes), reason) == (12, "length")


def test_a_told_length_is_stretched_and_raised(
    model: Valle, monkeypatch: pytest.MonkeyPatch
) -> None:
    for told, expected in ((100, 105), (20, 78)):
        monkeypatch.setattr("app.engine.level_0.masked.predict_length", lambda *_, told=told: told)
        assert len(draw(model, params(nar_len_steps=2), max_frames=500)[0]) == expected


def test_a_pass_leaves_no_fewer_frames_unmasked_than_the_one_before(model: Valle) -> None:
    piece = UtteranceInput(IDS, params(nar_len_frames=20), seed=0, utterance=0, max_frames=40)
    one, counts = MaskedUtterance(model, piece), list[int]()
    while one.finish_reason is None:
        one.step()
        counts.append(len(one))
    assert (counts, counts[-1]) == (sorted(counts), 20)


def test_all_levels_follow(model: Valle) -> None:
    piece = UtteranceInput(IDS, params(nar_len_frames=20), seed=0, utterance=0, max_frames=40)
    decoded = decode_utterance(model, torch.zeros(3, 32, 4), piece)
    assert decoded.codes.shape == (20, 3)
    assert decoded.finish_reason == "stop"

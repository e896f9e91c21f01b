"""Level 0 in masked passes: the reference's own loop, and what must hold of any."""

import json
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from app.engine.backend.planner import check_windows, choose_level_0, nar_plan
from app.engine.errors import InvalidRequest
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
    read = []
    while drawn.finish_reason is None:
        read.append(drawn.step())
    return drawn.level_0(), drawn.finish_reason, read


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
    read = []
    while drawn.finish_reason is None:
        read.append(drawn.step())
    assert torch.equal(torch.stack(read), expected["masked_loop_inputs"])
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


AR_ONLY = CONFIG.model_copy(update={"masked_level_0": False})
UNGUIDED = CONFIG.model_copy(update={"has_null_condition": False})


@pytest.mark.parametrize(
    ("knobs", "config", "way"),
    [
        ({}, CONFIG, "ar"),
        ({"preset": "vall_e"}, CONFIG, "masked"),
        ({"preset": "vall_e"}, AR_ONLY, "ar"),
        ({"preset": "vall_e", "temperature": 0.5}, CONFIG, "ar"),
        ({"preset": "vall_e", "temperature": 1.0, "nar_len_steps": 9}, CONFIG, "masked"),
        ({"level_0": "masked", "nar_temperature": 0.5, "pause_s": 1.0}, CONFIG, "masked"),
    ],
)
def test_auto_is_masked_where_the_model_can_and_nothing_speaks_against(
    knobs: dict[str, object], config: ModelConfig, way: str
) -> None:
    chosen = resolve(SamplingParams.model_validate(knobs | {"seed": 0}))
    settled = choose_level_0(chosen, knobs, config)
    assert settled == chosen.model_copy(update={"level_0": way})
    assert choose_level_0(settled, knobs, config) == settled


@pytest.mark.parametrize(
    ("knobs", "config", "param"),
    [
        ({"level_0": "masked"}, AR_ONLY, "level_0"),
        ({"level_0": "masked"}, UNGUIDED, "nar_len_cfg_strength"),
        ({"level_0": "masked", "top_k": 5}, CONFIG, "top_k"),
        ({"nar_len_steps": 9}, CONFIG, "nar_len_steps"),
        ({"preset": "vall_e", "nar_len_steps": 9}, AR_ONLY, "nar_len_steps"),
    ],
)
def test_knobs_of_the_other_way_and_models_that_cannot_are_refused(
    knobs: dict[str, object], config: ModelConfig, param: str
) -> None:
    chosen = resolve(SamplingParams.model_validate(knobs | {"seed": 0}))
    with pytest.raises(InvalidRequest) as refused:
        choose_level_0(chosen, knobs, config)
    assert refused.value.param == param


def test_no_windows_are_taken_from_a_model_that_needs_none() -> None:
    asked, moved = SamplingParams(nar_window_frames=15), {"nar_window_frames"}
    check_windows(asked, moved, CONFIG)
    for mask in ("causal", "block_causal"):
        with pytest.raises(InvalidRequest, match="need no windows") as refused:
            check_windows(asked, moved, CONFIG.model_copy(update={"nar_mask": mask}))
        assert refused.value.param == "nar_window_frames"


@pytest.mark.parametrize("knob", ["nar_left_context_frames", "nar_lookahead_frames"])
def test_a_context_without_windows_is_refused(knob: str) -> None:
    params = SamplingParams.model_validate({knob: 3})
    with pytest.raises(InvalidRequest, match="acts only with nar_window_frames") as refused:
        check_windows(params, {knob}, CONFIG)
    assert refused.value.param == knob
    check_windows(params, (), CONFIG)  # the preset's value is not the caller's fault


@pytest.mark.parametrize(
    ("mask", "size", "plan"),
    [("full", 0, "whole"), ("full", 15, "windows"), ("block_causal", 0, "chunks")],
)
def test_the_nar_plan_follows_from_the_mask_and_the_windows(
    mask: str, size: int, plan: str
) -> None:
    config = CONFIG.model_copy(update={"nar_mask": mask})
    assert nar_plan(config, SamplingParams(nar_window_frames=size)) == plan

"""Level 0 in masked passes: the reference's own loop, and what must hold of any."""

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from app.engine.ar.masked import MaskedUtterance, predict_length
from app.engine.utterance import UtteranceSpec
from lab.porting.convert import Switches
from models.config import BOS_ID, EOS_ID, ModelConfig
from models.valle import Valle
from samplers.knobs.params import SamplingParams
from samplers.knobs.resolve import resolve
from tests.models.test_valle import random_model
from tests.toy.make_public import load_switched

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


def sample(
    model: Valle, *, max_frames: int = 40, **knobs: object
) -> tuple[MaskedUtterance, list[Tensor]]:
    """Return an utterance at its end, and what each of its passes read."""
    chosen = params(**knobs)
    sampled = MaskedUtterance(model, UtteranceSpec(IDS, chosen, chosen.seed or 0, 0, max_frames))
    return sampled, passes(sampled)


def passes(sampled: MaskedUtterance) -> list[Tensor]:
    """Make all passes, none of which leaves fewer frames unmasked; return what each reads."""
    read, counts = list[Tensor](), [0]
    while sampled.finish_reason is None:
        read.append(sampled.step())
        counts.append(len(sampled))
    assert (counts, counts[-1]) == (sorted(counts), len(sampled.ar_codes()))
    return read


def test_every_pass_of_the_reference_loop(golden_valle: Path) -> None:
    folder = golden_valle / "dev"
    inputs = json.loads((folder / "inputs.json").read_text())
    meta = json.loads((folder / "meta.json").read_text())
    expected = load_file(folder / "expected.safetensors")
    model = load_switched(folder / "fp32.sft", Switches("inclusive", language=True))
    chosen = params(nar_len_steps=inputs["masked_steps"], nar_len_frames=inputs["masked_len"])
    prompt = torch.tensor(inputs["prom"])
    piece = UtteranceSpec(inputs["phn"], chosen, 0, 0, 500, prompt=prompt, language=inputs["lang"])
    sampled = MaskedUtterance(model, piece)
    assert torch.equal(torch.stack(passes(sampled)), expected["masked_loop_inputs"])
    assert torch.equal(sampled.ar_codes(), expected["masked_loop_output"])
    assert predict_length(model, piece.prefix(model, 0)) == meta["len_result"]


def test_the_first_pass_reads_masks_alone_and_the_last_leaves_none(model: Valle) -> None:
    sampled, read = sample(model, nar_len_frames=20)
    assert torch.equal(read[0], torch.full((20,), CONFIG.mask_token))
    known = [int((codes != CONFIG.mask_token).sum()) for codes in (*read, sampled.ar_codes())]
    assert (known, known[-1]) == (sorted(known), 20)
    assert sampled.ar_codes().max() < CONFIG.codes


def test_what_was_drawn_stays_where_only_masked_frames_are_scored(model: Valle) -> None:
    _, read = sample(model, nar_len_frames=30, nar_len_masked_only=True)
    for before, after in pairwise(read):
        known = before != CONFIG.mask_token
        assert torch.equal(before[known], after[known])


def test_the_same_seed_draws_the_same_and_another_another(model: Valle) -> None:
    hot: dict[str, Any] = {"nar_len_frames": 30, "nar_len_temperature": 1.5}
    one, again, other = (sample(model, seed=seed, **hot)[0].ar_codes() for seed in (1, 1, 2))
    assert torch.equal(one, again)
    assert not torch.equal(one, other)


@pytest.mark.parametrize(
    ("told", "knobs", "most", "expected"),
    [
        (0, {"nar_len_frames": 50}, 12, (12, "length")),  # past the limit it is cut
        (100, {}, 500, (105, "stop")),  # what the model tells is stretched
        (20, {}, 500, (78, "stop")),  # and raised
    ],
)
def test_how_long_it_is_and_why_it_ends(model, told, knobs, most, expected, monkeypatch) -> None:
    monkeypatch.setattr("app.engine.ar.masked.predict_length", lambda *_: told)
    sampled, _ = sample(model, max_frames=most, nar_len_steps=2, **knobs)
    assert (len(sampled.ar_codes()), sampled.finish_reason) == expected

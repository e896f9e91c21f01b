"""Every knob reaches the speech: for some setting it changes what POST /tts gives.

A new field of `SamplingParams` fails here until `ROWS` says what it changes. What a model cannot
honour is refused with the name of the knob.
"""

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest
import torch
from fastapi import FastAPI

from app.main import create_app
from app.settings import Settings
from models.checkpoints.builtin import load_lm, save_lm
from models.config import AlignmentHead
from samplers.knobs.features import needs_of
from samplers.knobs.params import SamplingParams
from tests.app.tools.serving import served
from tests.toy.make_toy import MODEL, make

Knobs = Mapping[str, Any]


class Spoken(NamedTuple):
    """The hashes of codes and of samples, and the knobs that did nothing or were refused."""

    codes: str
    sound: str
    idle: str


Speak = Callable[[Knobs], Spoken]

JSON = {"content-type": "application/json"}
STOP = MODEL.stop_token
BASE = {"input": "Hi.", "seed": 1, "max_duration_s": 0.32, "nar_levels": 0}
NAR = {"nar_levels": 2}
SAMPLED = NAR | {"nar_temperature": 1.0}
# Goes to a model that attends to one symbol at a time.
LOOKING = {"backtrack_repeat_frames": 0, "input": "Hello there, water."}
# Goes to a model whose NAR levels see all frames; others have no windows.
WINDOWED = NAR | {"nar_window_frames": 4}
AGAIN_AND_AGAIN = {"logit_bias": {"5": 9.0}}
ENDING = {"logit_bias": {str(STOP): 6.0}}
SHORT = {"logit_bias": {str(STOP): 50.0}, "min_frames": 3}
STUCK = {
    "logit_bias": {"5": 99.0, "6": 90.0},
    "backtrack": True,
    "backtrack_min_repeats": 2,
    "backtrack_min_frames": 4,
}
# Codes 5 and 6 in turn: a loop of period 2.
SWAYING = STUCK | {"ban_sequences": [{"codes": [5, 5]}], "temperature": 0.0}
DYNAMIC = {"min_temperature": 0.05, "temperature": 1.5, "dynatemp_center": 0.05}
MASKED = {"level_0": "masked", "nar_len_frames": 12, "nar_len_steps": 6}
# The toy tells a length of no frames for this text, of billions for others.
TOLD = {"level_0": "masked", "input": "Water."}
MASKED_SAMPLED = MASKED | {"nar_len_temperature": 1.0}
# The state of entropix that every code is in.
ADAPTIVE = {"entropix": True, "entropix_low_varentropy": 0.0, "entropix_high_varentropy": 99.0}
LELV = {"entropix": True, "entropix_low_entropy": 99.0, "entropix_low_varentropy": 99.0}
HELV = LELV | {"entropix_low_entropy": 0.0, "entropix_helv_entropy": 0.0}
LEHV = ADAPTIVE | {"entropix_high_varentropy": 0.0, "entropix_lehv_entropy": 99.0}
HEHV = LEHV | {"entropix_lehv_entropy": 0.0, "entropix_hehv_entropy": 0.0}
EVEN = ADAPTIVE | {
    "entropix_adaptive_entropy": 0.0,
    "entropix_adaptive_attention_entropy": 0.0,
    "entropix_adaptive_top_k_strength": 0.0,
    "entropix_adaptive_candidates": 1,
}
COOL = {"temperature": 0.4, "entropix_hehv_temperature_floor": 0.0}
TAKES = {"best_of": 8}
HUMMING = TAKES | {"backtrack_min_repeats": 2, "backtrack_min_frames": 2}
HUSHED = TAKES | {"seed": 2, "logit_bias": {"0": 6.0}, "backtrack_max_silence": 1}
BRANCHING = HELV | {
    "entropix_action": "branch",
    "entropix_branch_frames": 3,
    "entropix_branch_interval": 3,
}
PAUSING = HELV | {"entropix_action": "pause", "entropix_pause_end": 0}

# A knob, the value that changes something, and what else must be set for it to matter.
ROWS: dict[str, tuple[Any, Knobs]] = {
    "preset": ("greedy", {}),
    "seed": (2, {}),
    "cfg_strength": (2.0, {}),
    "cfg_rescale": (0.0, {"cfg_strength": 3.0}),
    "logit_bias": ({"5": 20.0}, {}),
    "ban_tokens": ([5], AGAIN_AND_AGAIN),
    "ban_sequences": ([{"codes": [5, 5]}], AGAIN_AND_AGAIN),
    "min_frames": (9, {"logit_bias": {str(STOP): 50.0}}),
    "repetition_penalty": (3.0, AGAIN_AND_AGAIN),
    "repetition_penalty_decay": (1.0, AGAIN_AND_AGAIN | {"repetition_penalty": 1.1}),
    "repetition_penalty_window": (1, AGAIN_AND_AGAIN | {"repetition_penalty": 1.5}),
    "repetition_penalty_one_time": (True, AGAIN_AND_AGAIN | {"repetition_penalty": 1.5}),
    "repetition_penalty_mode": ("raw", AGAIN_AND_AGAIN | {"repetition_penalty": 3.0}),
    "repetition_penalty_clamp": (
        False,
        AGAIN_AND_AGAIN
        | {
            "repetition_penalty": 1.5,
            "repetition_penalty_decay": -1.0,
            "repetition_penalty_mode": "signed",
        },
    ),
    "penalty_includes_prompt": (True, {"frequency_penalty": 2.0}),
    "frequency_penalty": (2.0, AGAIN_AND_AGAIN),
    "presence_penalty": (2.0, AGAIN_AND_AGAIN),
    "dry_multiplier": (3.0, AGAIN_AND_AGAIN),
    "dry_base": (4.0, AGAIN_AND_AGAIN | {"dry_multiplier": 0.5}),
    "dry_allowed_length": (9, AGAIN_AND_AGAIN | {"dry_multiplier": 3.0}),
    "dry_range": (2, AGAIN_AND_AGAIN | {"dry_multiplier": 3.0}),
    "dry_sequence_breakers": ([5], AGAIN_AND_AGAIN | {"dry_multiplier": 3.0}),
    "no_repeat_ngram_size": (2, AGAIN_AND_AGAIN),
    "length_penalty": (2.0, ENDING),
    "length_penalty_mode": (
        "signed",
        {"logit_bias": {str(STOP): 9.0}, "min_frames": 4, "length_penalty": 1.0},
    ),
    "exponential_decay_factor": (2.0, {}),
    "exponential_decay_start": (20, {"exponential_decay_factor": 2.0}),
    "top_n_sigma": (1.0, {}),
    "temperature": (0.5, {}),
    "min_temperature": (0.05, {"dynatemp_center": 0.05}),
    "dynatemp_mode": ("entropy", DYNAMIC),
    "dynatemp_slope": (50.0, DYNAMIC),
    "dynatemp_center": (0.5, DYNAMIC),
    "dynatemp_exponent": (4.0, DYNAMIC | {"dynatemp_mode": "entropy"}),
    "unified_conf": (2.0, {}),
    "unified_quad": (2.0, {}),
    "top_k": (2, {}),
    "top_p": (0.1, {}),
    "min_p": (0.7, {}),
    "p_less": (True, {}),
    "min_tokens_to_keep": (64, {"min_p": 1.0}),
    "typical_p": (0.1, {}),
    "epsilon_cutoff": (0.02, {}),
    "eta_cutoff": (0.5, {}),
    "xtc_probability": (1.0, {"xtc_threshold": 0.01}),
    "xtc_threshold": (0.01, {"xtc_probability": 1.0}),
    "protect_stop": (False, ENDING | {"xtc_probability": 1.0, "xtc_threshold": 0.01}),
    "mirostat_mode": (2, {}),
    "mirostat_tau": (3.0, {"mirostat_mode": 2}),
    "mirostat_eta": (1.0, {"mirostat_mode": 2, "mirostat_tau": 3.0}),
    "mirostat_surprise": (
        "truncated",
        {"mirostat_mode": 2, "mirostat_tau": 3.0, "mirostat_eta": 1.0},
    ),
    "ras": (True, AGAIN_AND_AGAIN),
    "ras_top_p": (0.1, {"ras": True}),
    "ras_top_k": (1, {"ras": True}),
    "ras_window": (1, {"ras": True, "ras_tau": 1.0, "logit_bias": {"5": 7.0}}),
    "ras_tau": (1.0, {"ras": True, "logit_bias": {"5": 7.0}}),
    "ras_mask_first": (False, {"ras": True} | AGAIN_AND_AGAIN),
    "sampler_order": ("llama", {"temperature": 3.0, "top_p": 0.5}),
    "temperature_last": (True, {"temperature": 3.0, "top_p": 0.5}),
    "text_lookahead_words": (1, {"input": "Hello there, dear water."}),
    "alignment_stop_frames": (1, {}),
    "backtrack": (False, STUCK),
    "backtrack_max_period": (1, SWAYING),
    "backtrack_min_repeats": (16, SWAYING),
    "backtrack_min_frames": (150, SWAYING),
    # Code 0 is silence to the toy's codec.
    "backtrack_max_silence": (5, {"logit_bias": {"0": 99.0}, "backtrack": True}),
    "backtrack_repeat_frames": (1, LOOKING | {"backtrack": True}),
    "backtrack_window": (1, SWAYING),
    # Found after the first block.
    "backtrack_share": (0.05, STUCK | {"backtrack_min_frames": 20}),
    "backtrack_budget": (0, SWAYING),
    "backtrack_factor": (1e-9, STUCK | {"temperature": 0.0, "backtrack_budget": 1}),
    "backtrack_strength": (100.0, SWAYING),
    "best_of": (4, {}),
    "beam_width": (2, {}),
    "beam_length_power": (0.0, {"beam_width": 4, "logit_bias": {str(STOP): 4.0}}),
    "rank_alignment_weight": (100.0, TAKES | {"rank_alignment_weight": 0.0}),
    "rank_loop_penalty": (100.0, HUMMING | {"logit_bias": {"5": 5.0}}),
    "rank_silence_penalty": (100.0, HUSHED),
    "rank_length_penalty": (
        100.0,
        TAKES | {"logit_bias": {str(STOP): 4.0}, "rank_alignment_weight": 0.0},
    ),
    "nar_levels": (1, NAR),
    "nar_decision": ("mean", NAR),
    "nar_temperature": (1.0, NAR),
    "nar_level_temperatures": ([1.0], NAR),
    "nar_top_k": (2, SAMPLED),
    "nar_top_p": (0.1, SAMPLED),
    "nar_min_p": (0.7, SAMPLED),
    "nar_cfg_strength": (3.0, NAR),
    # A greedy draw does not see the spread.
    "nar_cfg_rescale": (0.0, SAMPLED | {"nar_cfg_strength": 3.0}),
    "nar_window_frames": (4, WINDOWED | {"nar_window_frames": 0}),
    "nar_left_context_frames": (1, WINDOWED),
    "nar_lookahead_frames": (9, WINDOWED),
    "context_utterances": (1, SHORT | {"input": "Hi. You.", "min_frames": 9}),
    "prompt_as_prefix": (True, {}),
    "pause_s": (1.0, SHORT | {"input": "Hi. You."}),
    "level_0": ("masked", {}),
    "nar_len_steps": (2, MASKED),
    "nar_len_frames": (9, MASKED),
    "nar_len_min_frames": (9, TOLD),
    "nar_len_stretch": (0.1, TOLD),
    "nar_len_cfg_strength": (1.0, MASKED),
    "nar_len_cfg_rescale": (0.0, MASKED_SAMPLED),
    "nar_len_temperature": (1.0, MASKED),
    "nar_len_top_k": (1, MASKED_SAMPLED),
    "nar_len_top_p": (0.1, MASKED_SAMPLED),
    "nar_len_min_p": (0.7, MASKED_SAMPLED),
    "nar_len_score": ("likeliest", MASKED_SAMPLED),
    "nar_len_masked_only": (False, MASKED_SAMPLED),
    "nar_len_remask": (True, MASKED | {"nar_len_frames": 24}),
    "entropix": (True, {}),
    "entropix_action": ("resample", HELV),
    "entropix_low_entropy": (0.0, LELV),
    "entropix_low_varentropy": (0.0, LELV),
    "entropix_helv_entropy": (99.0, HELV),
    "entropix_lehv_entropy": (0.0, LEHV),
    "entropix_hehv_entropy": (99.0, HEHV),
    "entropix_high_varentropy": (99.0, LEHV),
    "entropix_helv_temperature": (0.1, HELV | COOL),
    "entropix_helv_attention_entropy": (-0.3, HELV | COOL),
    "entropix_helv_temperature_ceiling": (0.2, HELV),
    "entropix_lehv_temperature": (0.1, LEHV | COOL),
    "entropix_lehv_strength": (-1.0, LEHV | COOL),
    "entropix_lehv_temperature_ceiling": (0.2, LEHV),
    "entropix_lehv_top_k_agreement": (10.0, LEHV | {"top_k": 8}),
    "entropix_lehv_top_k_floor": (99, LEHV | {"top_k": 2}),
    "entropix_hehv_temperature": (0.1, HEHV | COOL),
    "entropix_hehv_attention_varentropy": (10.0, HEHV | COOL),
    "entropix_hehv_temperature_floor": (9.0, HEHV),
    "entropix_hehv_top_p_attention_entropy": (0.0, HEHV),
    "entropix_hehv_top_p_floor": (0.0, HEHV | {"entropix_hehv_top_p_attention_entropy": 10.0}),
    "entropix_adaptive_candidates": (1, ADAPTIVE),
    "entropix_adaptive_entropy": (2.0, ADAPTIVE | COOL),
    "entropix_adaptive_attention_entropy": (5.0, ADAPTIVE | COOL),
    "entropix_adaptive_agreement": (10.0, EVEN),
    "entropix_adaptive_top_p": (10.0, ADAPTIVE | {"top_p": 0.3}),
    "entropix_adaptive_top_p_floor": (0.9, ADAPTIVE | {"top_p": 0.2}),
    "entropix_adaptive_top_p_ceiling": (0.1, ADAPTIVE),
    "entropix_adaptive_top_k_strength": (5.0, ADAPTIVE | {"top_k": 8}),
    "entropix_adaptive_top_k_agreement": (10.0, EVEN | {"top_k": 8}),
    "entropix_adaptive_top_k_floor": (90, ADAPTIVE | {"top_k": 2}),
    "entropix_adaptive_top_k_ceiling": (2, ADAPTIVE | {"top_k": 50}),
    "entropix_adaptive_min_p": (-0.5, EVEN | {"min_p": 0.1}),
    "entropix_adaptive_min_p_floor": (0.5, EVEN | {"min_p": 0.1}),
    "entropix_adaptive_min_p_ceiling": (
        0.05,
        EVEN | {"min_p": 0.1, "entropix_adaptive_min_p": -1.0},
    ),
    "entropix_branch_rollouts": (2, BRANCHING),
    "entropix_branch_frames": (9, BRANCHING),
    "entropix_branch_interval": (50, BRANCHING),
    "entropix_pause_interval": (9, PAUSING),
    "entropix_pause_silence": (15, PAUSING),
    "entropix_pause_end": (99, PAUSING),
}

# What a model cannot honour that has no prompt, no null condition, no masked level 0 and no need
# of windows.
BARE = {"has_null_condition": False, "nar_has_null_condition": False, "max_prompt_frames": 0}
REFUSED: Knobs = {
    "cfg_strength": 1.5,
    "nar_cfg_strength": 1.5,
    "nar_window_frames": 15,
    "penalty_includes_prompt": True,
    "prompt_as_prefix": True,
    "level_0": "masked",
}


@pytest.fixture(scope="module")
def speak(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Speak]:
    """Ask models that can do everything; equal requests are sent once."""
    head = AlignmentHead(layer=0, head=0)
    able = MODEL.model_copy(update={"masked_level_0": True, "alignment": head})
    full = able.model_copy(update={"nar_mask": "full"})
    folder = tmp_path_factory.mktemp("able")
    looking = make(folder / "looking", config=able)
    model = load_lm(looking)
    with torch.no_grad():
        model.transformer.blocks[0].attention.qkv.weight.mul_(20.0)
    save_lm(looking, able, model.state_dict())
    with (
        served(_toy_app(make(folder / "toy", config=able))) as client,
        served(_toy_app(make(folder / "full", config=full))) as full_client,
        served(_toy_app(looking)) as looking_client,
    ):

        @cache
        def spoken(body: str) -> Spoken:
            asked = full_client if "nar_window_frames" in json.loads(body) else client
            asked = looking_client if json.loads(body)["input"] == LOOKING["input"] else asked
            answer = asked.post("/tts", content=body, headers=JSON)
            if answer.status_code == 422:
                return Spoken("", "", answer.json()["error"]["param"])
            assert answer.status_code == 200, answer.text
            sound = hashlib.sha256(answer.content).hexdigest()
            idle = answer.headers.get("x-ignored", "")
            return Spoken(answer.headers["x-codes-sha256"], sound, idle)

        yield lambda knobs: spoken(json.dumps({**BASE, **knobs}, sort_keys=True))


def _toy_app(folder: Path) -> FastAPI:
    return create_app(Settings(model=str(folder), device="cpu"))


@pytest.fixture(scope="module")
def bare_client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    folder = make(tmp_path_factory.mktemp("bare") / "toy", config=MODEL.model_copy(update=BARE))
    with served(_toy_app(folder)) as client:
        yield client


def test_every_knob_has_a_row() -> None:
    missing = SamplingParams.model_fields.keys() - ROWS.keys()
    assert not missing, (
        f"{sorted(missing)}: say in ROWS of {__file__} what each changes, so that it is known to"
        " reach the speech"
    )
    assert not ROWS.keys() - SamplingParams.model_fields.keys()


@pytest.mark.parametrize("knob", ROWS)
def test_a_knob_changes_what_is_spoken(speak: Speak, knob: str) -> None:
    value, given = ROWS[knob]
    changed = speak({**given, knob: value})
    assert changed.codes
    assert speak(given)[:2] != changed[:2]
    assert knob not in changed.idle.split(", ")


@pytest.mark.parametrize("knob", [name for name in ROWS if needs_of(name)])
def test_a_knob_without_what_it_needs_is_named_and_changes_nothing_or_is_refused(
    speak: Speak, knob: str
) -> None:
    alone = speak({knob: ROWS[knob][0]})
    assert alone.idle == knob
    assert alone[:2] in {speak({})[:2], ("", "")}


@pytest.mark.parametrize("knob", REFUSED)
def test_a_knob_that_the_model_cannot_honour_is_refused_by_name(
    bare_client: httpx.Client, knob: str
) -> None:
    answer = bare_client.post("/tts", json={**BASE, knob: REFUSED[knob]})
    assert (answer.status_code, answer.json()["error"]["param"]) == (422, knob), answer.text

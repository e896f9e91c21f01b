"""Entropix in the chain: what each state does to what may be sampled, pauses, and every knob."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from samplers.ar.sampler import ArSampler
from samplers.ar.trace import Trace
from samplers.knobs.params import SamplingParams
from samplers.ops.entropix import State
from tests.samplers.ar.rows import ALWAYS_HELV
from tests.samplers.reference.harness import attention, entries_of, make_sampler

VOCAB, STOP = 64, 63
HEADS = [1.0, 2.0, 0.5, 0.25]  # entropy, varentropy, agreement, strength
SILENT = range(40, 44)

SURE = torch.full((VOCAB,), -20.0).index_fill(0, torch.tensor([7]), 20.0)
FLAT = torch.zeros(VOCAB)
MIDDLING = torch.linspace(0, 3, VOCAB)[torch.randperm(VOCAB, generator=torch.manual_seed(0))]


def make(params: SamplingParams, seed: int = 1, **options: Any) -> ArSampler:
    defaults: dict[str, Any] = {
        "stop_token": STOP, "vocab_size": VOCAB, "max_frames": 200, "silent": SILENT,
    }  # fmt: skip
    return make_sampler([params], [seed], **(defaults | options))


def record(logits: Tensor, heads: list[float] = HEADS, **knobs: Any) -> dict[str, Any]:
    """What one step of entropix did."""
    trace = Trace()
    sampler = make(SamplingParams(entropix=True, **knobs))
    sampler.step(logits[None], trace, attention=attention([heads]))
    return entries_of(trace, 0)[0]


def test_a_sure_row_takes_its_likeliest_code() -> None:
    found = record(SURE, temperature=2.0)
    assert found["entropix_state"] == State.LELV
    assert (found["code"], found["temperature"], found["kept"], found["score"]) == (7, 0, 1, 0)


def test_a_flat_row_is_heated_up_to_the_ceiling() -> None:
    found = record(FLAT, temperature=0.8)
    assert found["entropix_state"] == State.HELV
    assert found["temperature"] == pytest.approx(0.8 * (1.3 + 0.2 * 1.0))
    assert record(FLAT)["temperature"] == pytest.approx(1.5)
    assert record(FLAT)["kept"] == VOCAB


def test_the_adaptive_state_moves_all_four_knobs_by_entropy_and_attention() -> None:
    found = record(MIDDLING, top_p=0.9, top_k=12, min_p=0.2, temperature=0.7)
    assert found["entropix_state"] == State.ADAPTIVE
    unsureness = found["entropy_bits"] + found["varentropy_bits2"]
    heat = 1 + 0.3 * unsureness + 0.2 * (1.0 + 2.0) - 0.2 * 0.5
    assert found["temperature"] == pytest.approx(0.7 * heat, rel=1e-5)
    probs = (MIDDLING / (0.7 * heat)).softmax(0).sort(descending=True).values
    top_k = round(12 * (1 + 0.3 * 0.25 - 0.2 * 0.5))
    probs = probs[:top_k] / probs[:top_k].sum()
    by_mass = (probs.cumsum(0) - probs < min(0.9 * (1 + 0.1 * 2.0), 1)).sum()
    by_best = (probs >= 0.01 * probs[0]).sum()
    assert found["kept"] == int(min(by_mass, by_best))


def test_the_numbers_of_the_model_are_in_the_record() -> None:
    found = record(MIDDLING)
    names = ("entropy_bits", "varentropy_bits2", "agreement", "strength")
    assert [found[f"attention_{name}"] for name in names] == HEADS
    trace = Trace()
    make(SamplingParams()).step(MIDDLING[None], trace)
    off = entries_of(trace, 0)[0]
    assert off["entropix_state"] == State.OFF
    assert all(math.isnan(off[f"attention_{name}"]) for name in names)


def test_bans_and_penalties_come_before_the_state_is_read() -> None:
    unbanned = record(SURE)
    banned = record(SURE, ban_tokens=(7,))
    assert (unbanned["entropix_state"], banned["entropix_state"]) == (State.LELV, State.HELV)
    assert banned["code"] != 7


def pausing(**knobs: Any) -> SamplingParams:
    return SamplingParams(entropix=True, entropix_action="pause", **ALWAYS_HELV | knobs)


def pauses(sampler: ArSampler, rows: list[Tensor]) -> list[int]:
    """At which frames a pause was put in."""
    trace = Trace()
    for row in rows:
        sampler.step(row[None], trace, attention=attention([HEADS]))
    found = entries_of(trace, 0)
    for entry in found:
        assert entry["entropix_state"] == State.HELV
        if entry["paused"]:
            assert entry["code"] in SILENT
            assert (entry["temperature"], entry["kept"]) == (1, len(SILENT))
        else:
            assert entry["temperature"] == pytest.approx(1.5)
    return [entry["frame"] for entry in found if entry["paused"]]


LOUD = MIDDLING.index_fill(0, torch.tensor(SILENT), -30.0)
LOUD[STOP] = -math.inf


def test_a_pause_comes_once_in_an_interval_not_at_the_start_and_not_at_the_end() -> None:
    assert pauses(make(pausing(), max_frames=120), [LOUD] * 120) == [5, 55, 105]
    assert pauses(make(pausing(), max_frames=114), [LOUD] * 114) == [5, 55]
    knobs = {"entropix_pause_interval": 7, "entropix_pause_silence": 2, "entropix_pause_end": 0}
    assert pauses(make(pausing(**knobs), max_frames=23), [LOUD] * 23) == [2, 9, 16]


def test_no_pause_follows_as_many_frames_of_silence() -> None:
    often = pausing(entropix_pause_interval=1, entropix_pause_silence=3)
    assert pauses(make(often), [LOUD] * 12) == [3, 4, 5, 7, 8, 9, 11]


def test_a_rewind_takes_pauses_back() -> None:
    rewound, straight = make(pausing()), make(pausing())
    assert pauses(rewound, [LOUD] * 60) == [5, 55]
    rewound.rewind(0, 50)
    assert pauses(rewound, [LOUD] * 30) == [55]
    rewound.rewind(0, 3)
    assert pauses(rewound, [LOUD] * 60) == pauses(straight, [LOUD] * 63) == [5, 55]


def test_where_there_is_no_silence_to_put_in_the_row_is_heated() -> None:
    assert pauses(make(pausing(), silent=()), [LOUD] * 10) == []
    assert pauses(make(pausing(ban_tokens=tuple(SILENT))), [LOUD] * 10) == []


def test_resample_acts_in_both_states_of_high_entropy_and_leaves_the_temperature_in_helv() -> None:
    resample: dict[str, Any] = {"entropix_action": "resample"}
    helv = record(FLAT, **resample, **ALWAYS_HELV)
    assert (helv["temperature"], helv["kept"]) == (1, VOCAB - 1)
    hehv = record(
        MIDDLING, **resample, entropix_hehv_entropy=1.0, entropix_lehv_entropy=0.0,
        entropix_high_varentropy=0.1, entropix_low_varentropy=0.0, top_p=1.0,
        entropix_hehv_top_p_attention_entropy=0.0,
    )  # fmt: skip
    assert hehv["temperature"] > 2
    assert hehv["kept"] == VOCAB - 1
    assert record(MIDDLING, **resample)["kept"] == record(MIDDLING)["kept"]


def branching(**knobs: Any) -> SamplingParams:
    return SamplingParams(entropix=True, entropix_action="branch", **ALWAYS_HELV | knobs)


def ways(sampler: ArSampler, row: Tensor, count: int) -> dict[int, list[int]]:
    """At which frames the row would go on in several ways, and by which codes."""
    found, trace = {}, Trace()
    for _ in range(count):
        frame = int(sampler.table.lengths)
        stepped = sampler.advance(row[None], trace, attention=attention([HEADS]))
        assert stepped.alternatives is not None
        found[frame] = [code for code in stepped.alternatives[0].tolist() if code >= 0]
        if found[frame]:
            assert found[frame][0] == int(stepped.codes)
    kept = {frame: codes for frame, codes in found.items() if codes}
    assert [one["frame"] for one in entries_of(trace, 0) if one["branched"]] == list(kept)
    return kept


def test_a_row_branches_once_in_an_interval_and_where_there_is_room() -> None:
    found = ways(make(branching(entropix_branch_interval=30), max_frames=72), LOUD, 72)
    assert list(found) == [0, 30, 60]
    assert all(len(set(codes)) == 4 for codes in found.values())
    assert list(ways(make(branching(entropix_branch_interval=1)), LOUD, 40)) == [0, 12, 24, 36]
    assert list(ways(make(branching(), max_frames=61), LOUD, 61)) == [0]


LEHV = {
    "entropix_low_varentropy": 0.0,
    "entropix_high_varentropy": 0.0,
    "entropix_lehv_entropy": 99,
}


def test_a_row_branches_where_it_is_torn_too_and_is_heated_there_alone() -> None:
    sampler, trace = make(SamplingParams(entropix=True, entropix_action="branch", **LEHV)), Trace()
    for row in (MIDDLING, MIDDLING):
        sampler.advance(row[None], trace, attention=attention([HEADS]))
    assert [one["branched"] for one in entries_of(trace, 0)] == [True, False]
    assert all(one["temperature"] > 1 for one in entries_of(trace, 0))
    assert record(FLAT, entropix_action="branch", **ALWAYS_HELV)["temperature"] == 1


def test_a_row_that_ends_does_not_branch_and_the_stop_is_no_way_to_go_on() -> None:
    ending = SURE.roll(STOP - 7)
    assert ways(make(branching()), ending, 1) == {}
    few = torch.full((VOCAB,), -math.inf).index_fill(0, torch.tensor([3, 5, STOP]), 0.0)
    met = [ways(make(branching(), seed=seed), few, 1).get(0) for seed in range(30)]
    assert {None if codes is None else frozenset(codes) for codes in met} == {
        None,
        frozenset({3, 5}),
    }


def test_a_rewind_takes_branches_back() -> None:
    sampler = make(branching())
    assert list(ways(sampler, LOUD, 60)) == [0, 50]
    sampler.rewind(0, 45)
    assert list(ways(sampler, LOUD, 10)) == [50]

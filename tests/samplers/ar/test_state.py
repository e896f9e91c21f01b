"""Rows of one table: each is drawn as if it had been alone all the time, in a new table."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from torch import Tensor

from samplers.ar.sampler import ArSampler
from samplers.ar.state import Host, RowInput, SlotTable
from samplers.ar.trace import Record, Trace, columns
from samplers.knobs.params import SamplingParams
from tests.samplers.ar.rows import (
    PROMPT,
    SILENT,
    SINGLE,
    STOP,
    VOCAB,
    attention_of,
    leaning,
    logits_of,
)
from tests.samplers.reference.harness import attention, codes_of

FRAMES = (9, 17, 30)
DEEDS = ["join", "join", "pause", "rewind", "leave"]
NOTHING = [float("nan")] * 4
SLOTS = 9


@dataclass(eq=False)
class Speaker:
    """One row wherever it is: what it is made of, and what it has drawn so far.

    Attributes:
        rewinds: By how many codes it had given: to which length, and what it then avoids.
    """

    number: int
    max_frames: int
    slot: int = 0
    paused: bool = False
    codes: list[int] = field(default_factory=list)
    records: list[tuple[Record, int]] = field(default_factory=list)
    rewinds: dict[int, tuple[int, Tensor | None]] = field(default_factory=dict)

    @property
    def params(self) -> SamplingParams:
        return SINGLE[self.number % len(SINGLE)]

    def enter(self, sampler: ArSampler, slot: int = 0) -> None:
        self.slot, silent = slot, SILENT if self.number % 2 else None
        given = RowInput(
            self.params, self.number, self.max_frames, self.number % 3, prompt=PROMPT, silent=silent
        )
        sampler.join([slot], given)


def sampler_of(slots: int = SLOTS) -> ArSampler:
    """Return a sampler whose table holds the worst that rows before may have left."""
    sampler = ArSampler(
        SlotTable(slots, frames=30, prompt=len(PROMPT), vocab_size=VOCAB), stop_token=STOP
    )
    table = sampler.table
    table.codes.fill_(3)
    table.lengths.fill_(7)
    table.stopped.fill_(True)
    table.beam_scores.fill_(-torch.inf)
    table.runs.fill_(5)
    table.last_act.fill_(2)
    table.host[:, Host.AVOID] = 3
    for numbers in (table.mu, table.avoid):
        numbers.fill_(torch.nan)
    return sampler


def step(sampler: ArSampler, speakers: list[Speaker]) -> None:
    """Draw once for all; each hears what the model would tell it after so many steps of its own."""
    trace, speakers = Trace(), sorted(speakers, key=lambda one: one.slot)
    heads = [
        attention_of(len(s.codes), s.number) if s.params.entropix else NOTHING for s in speakers
    ]
    logits = [logits_of(len(s.codes), s.number) for s in speakers]
    null = [
        logits_of(len(s.codes), s.number + 10**6) for s in speakers if s.params.cfg_strength > 1
    ]
    codes = sampler.advance(
        torch.stack(logits), trace, torch.stack(null) if null else None, attention(heads),
        [speaker.slot for speaker in speakers],
    ).codes  # fmt: skip
    for row, speaker in enumerate(speakers):
        speaker.codes.append(int(codes[row]))
        speaker.records.append((trace.records[0], row))


def assert_undisturbed(like: Speaker) -> None:
    """Assert that a row is as one stepped as often, and rewound alike, with nobody beside it."""
    speaker = Speaker(like.number, like.max_frames)
    sampler = ArSampler(
        SlotTable(1, frames=30, prompt=len(PROMPT), vocab_size=VOCAB), stop_token=STOP
    )
    speaker.enter(sampler)
    for _ in like.codes:
        if (rewind := like.rewinds.get(len(speaker.codes))) is not None:
            sampler.rewind(0, *rewind)
        step(sampler, [speaker])
    assert like.codes == speaker.codes
    found, wanted = columns(like.records), columns(speaker.records)
    for column in found:
        np.testing.assert_array_equal(found[column], wanted[column], column)


@settings(
    max_examples=60, phases=(Phase.explicit, Phase.reuse, Phase.generate),
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)  # fmt: skip
@given(st.data())
def test_a_row_gives_the_same_codes_and_trace_whoever_comes_and_goes(data: st.DataObject) -> None:
    """Rows join, pause, come back, are rewound and leave between any two steps."""
    sampler, held = sampler_of(), list[Speaker]()
    ever = list[Speaker]()
    for _ in range(data.draw(st.integers(5, 30))):
        for _ in range(data.draw(st.integers(0, 3))):
            deed = data.draw(st.sampled_from(DEEDS))
            free = sorted({*range(SLOTS)} - {one.slot for one in held})
            one = held[data.draw(st.integers(0, len(held) - 1))] if held else None
            if deed == "join" and free:
                one = Speaker(data.draw(st.integers(0, 10**4)), data.draw(st.sampled_from(FRAMES)))
                ever.append(one)
                held.append(one)
                one.enter(sampler, data.draw(st.sampled_from(free)))
            elif one is None:
                continue
            elif deed == "leave":
                sampler.leave(one.slot)
                held.remove(one)
            elif deed == "pause":
                one.paused = not one.paused
            elif deed == "rewind" and one.codes and len(one.codes) not in one.rewinds:
                length = data.draw(st.integers(0, len(codes_of(sampler, one.slot))))
                nats = torch.zeros(VOCAB)
                nats[one.number % VOCAB] = -3.0
                avoid = nats if data.draw(st.booleans()) else None
                sampler.rewind(one.slot, length, avoid)
                one.rewinds[len(one.codes)] = length, avoid
        if running := [one for one in held if not one.paused]:
            step(sampler, running)
    for speaker in ever:
        assert_undisturbed(speaker)


HISTORY = PROMPT.tolist()
PENALTIES: dict[str, dict[str, Any]] = {
    "repetition": {"repetition_penalty": 4.0, "repetition_penalty_window": 6},
    "whole history": {"repetition_penalty": 4.0, "repetition_penalty_window": 0},
    "frequency": {"frequency_penalty": 2.0},
    "presence": {"presence_penalty": 2.0},
    "dry": {"dry_multiplier": 3.0, "dry_allowed_length": 1},
    "ngram": {"no_repeat_ngram_size": 2},
}


def draw(sampler: ArSampler, row: int = 0, first: int = 0) -> list[int]:
    """Draw from logits that change at every frame, so that greedy does not loop."""
    rows = len(sampler.active)
    told = (logits_of(t, 0).expand(rows, -1) for t in range(first, 12))
    return [int(sampler.step(one)[row]) for one in told]


@pytest.mark.parametrize("knobs", PENALTIES.values(), ids=PENALTIES)
def test_codes_count_alike_whether_drawn_given_or_forked_also_after_a_rewind(knobs) -> None:
    params = SamplingParams(temperature=0.0, ban_tokens=(STOP,), **knobs)
    counting = params.model_copy(update={"penalty_includes_prompt": True})

    def begun(one: SamplingParams, prompt: Tensor | None, *codes: int) -> ArSampler:
        sampler = sampler_of()
        sampler.join([0], RowInput(one, 1, 30, prompt=prompt))
        for code in codes:
            assert int(sampler.step(leaning(code, against=-1e6))) == code
        return sampler

    given, drawn = begun(counting, PROMPT), begun(params, None, *HISTORY)
    expected = draw(drawn)
    assert draw(given) == expected
    assert codes_of(given, 0) == expected  # the prompt is no speech
    assert expected != draw(begun(params, None))  # every penalty has something to change
    for length in (7, 0, 11):
        given.rewind(0, length)
        assert draw(given, first=length) == expected[length:]
    forked = begun(counting, PROMPT[:2], HISTORY[2], 5)
    forked.fork(0, 3, 1 + 1, HISTORY[3], 1)
    assert [codes_of(forked, slot) for slot in (0, 3)] == [[HISTORY[2], 5], HISTORY[2:]]
    assert draw(forked, row=1) == expected


def test_forks_with_other_numbers_draw_otherwise_and_the_row_itself_as_before() -> None:
    samplers = sampler_of(), sampler_of()
    for sampler in samplers:
        sampler.join([0], RowInput(SamplingParams(ban_tokens=(STOP,)), 1, 30))
        sampler.step(torch.zeros(1, VOCAB))
    (code,) = codes_of(samplers[0], 0)
    for number in (1, 2):
        samplers[0].fork(0, 3 * number, 1, code, number)
    for _ in range(20):
        samplers[0].step(torch.zeros(3, VOCAB))
        samplers[1].step(torch.zeros(1, VOCAB))
    assert codes_of(samplers[0], 0) == codes_of(samplers[1], 0)
    assert len({tuple(codes_of(samplers[0], slot)) for slot in (0, 3, 6)}) == 3

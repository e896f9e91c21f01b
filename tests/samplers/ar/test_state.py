"""Rows that join, leave and come back: each goes on as if it had been alone all the time."""

from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from torch import Tensor

from samplers.ar.sampler import ArSampler
from samplers.ar.state import SamplerState
from samplers.ar.trace import Record, Trace, columns
from samplers.knobs.params import SamplingParams
from tests.samplers.ar.test_sampler import MIXED, SILENT, STOP, VOCAB, attention_of, logits_of
from tests.samplers.reference.harness import attention

PARAMS = [
    *MIXED,
    SamplingParams(dry_multiplier=1.0, dry_allowed_length=1, penalty_includes_prompt=True),
    SamplingParams(repetition_penalty=1.5, penalty_includes_prompt=True, sampler_order="llama"),
    SamplingParams(no_repeat_ngram_size=2, penalty_includes_prompt=True, ban_tokens=(STOP,)),
]
PROMPT = torch.tensor([3, 7, 9, 3, 7])
FRAMES = (9, 17, 30)
NOTHING = [float("nan")] * 4


@dataclass(eq=False)
class Speaker:
    """One row wherever it is: what it is made of, and what it has drawn so far."""

    number: int
    max_frames: int
    codes: list[int] = field(default_factory=list)
    records: list[tuple[Record, int]] = field(default_factory=list)
    parked: SamplerState | None = None
    rewinds: dict[int, int] = field(default_factory=dict)

    @property
    def params(self) -> SamplingParams:
        return PARAMS[self.number % len(PARAMS)]

    def enter(self, sampler: ArSampler) -> None:
        if self.parked is not None:
            sampler.rejoin(self.parked)
            self.parked = None
            return
        sampler.join(
            self.params, self.number, max_frames=self.max_frames, utterance=self.number % 3,
            prompt=PROMPT, silent=SILENT if self.number % 2 else None,
        )  # fmt: skip


def nobody() -> ArSampler:
    return ArSampler(stop_token=STOP, vocab_size=VOCAB)


def step(sampler: ArSampler, speakers: list[Speaker]) -> None:
    """Draw once for all; each hears what the model would tell it after so many steps of its own."""
    trace = Trace()
    heads = [
        attention_of(len(s.codes), s.number) if s.params.entropix else NOTHING for s in speakers
    ]
    logits = [logits_of(len(s.codes), s.number) for s in speakers]
    codes = sampler.step(torch.stack(logits), trace, attention=attention(heads))
    for row, speaker in enumerate(speakers):
        speaker.codes.append(int(codes[row]))
        speaker.records.append((trace.records[0], row))


def alone(like: Speaker) -> Speaker:
    """The same row, stepped as often and taken back at the same places, with nobody beside it."""
    speaker, sampler = Speaker(like.number, like.max_frames), nobody()
    speaker.enter(sampler)
    for _ in like.codes:
        if (length := like.rewinds.get(len(speaker.codes))) is not None:
            sampler.rewind(0, length)
        step(sampler, [speaker])
    return speaker


def assert_undisturbed(speaker: Speaker) -> None:
    reference = alone(speaker)
    assert speaker.codes == reference.codes
    found, wanted = columns(speaker.records), columns(reference.records)
    for column in found:
        np.testing.assert_array_equal(found[column], wanted[column], column)


def a_schedule(data: st.DataObject) -> None:
    """Let rows join, pause, come back, be taken back and leave between any two steps."""
    sampler, running = nobody(), list[Speaker]()
    parked, all_ever = list[Speaker](), list[Speaker]()
    for _ in range(data.draw(st.integers(5, 30))):
        for _ in range(data.draw(st.integers(0, 3))):
            deed = data.draw(st.sampled_from(["join", "join", "park", "resume", "rewind", "leave"]))
            if deed == "join" and len(running) < 6:
                number, frames = (
                    data.draw(st.integers(0, 10**4)),
                    data.draw(st.sampled_from(FRAMES)),
                )
                running.append(Speaker(number, frames))
                all_ever.append(running[-1])
                running[-1].enter(sampler)
            elif deed == "resume" and parked:
                running.append(parked.pop(data.draw(st.integers(0, len(parked) - 1))))
                running[-1].enter(sampler)
            elif deed in {"park", "leave"} and running:
                row = data.draw(st.integers(0, len(running) - 1))
                gone, memory = running.pop(row), sampler.leave(row)
                if deed == "park":
                    gone.parked = memory
                    parked.append(gone)
            elif deed == "rewind" and running:
                row = data.draw(st.integers(0, len(running) - 1))
                one = running[row]
                if one.codes and len(one.codes) not in one.rewinds:
                    length = data.draw(st.integers(0, int(sampler.lengths[row])))
                    sampler.rewind(row, length)
                    one.rewinds[len(one.codes)] = length
        assert len(sampler) == len(running)
        if running:
            step(sampler, running)
    for speaker in all_ever:
        assert_undisturbed(speaker)


@settings(
    max_examples=60, deadline=None, phases=(Phase.explicit, Phase.reuse, Phase.generate),
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)  # fmt: skip
@given(st.data())
def test_a_row_gives_the_same_codes_and_trace_whoever_comes_and_goes(data: st.DataObject) -> None:
    a_schedule(data)


def test_every_kind_of_row_goes_on_undisturbed_while_all_others_come_and_go() -> None:
    sampler, everybody = nobody(), [Speaker(number, 30) for number in range(len(PARAMS))]
    running: list[Speaker] = []
    for number, speaker in enumerate([*everybody, *[None] * 20]):
        if speaker is not None:
            running.append(speaker)
            speaker.enter(sampler)
        step(sampler, running)
        if number % 3 == 2:
            running.append(running.pop(0))  # the oldest leaves and comes back at the end
            sampler.rejoin(sampler.leave(0))
        if number % 5 == 4 and len(running) > 3:
            sampler.leave(2)
            running.pop(2)
    for speaker in everybody:
        assert len(speaker.codes) > 3
        assert_undisturbed(speaker)


def test_a_row_may_join_in_the_place_of_the_only_one() -> None:
    sampler, first, second = nobody(), Speaker(0, 9), Speaker(13, 30)
    first.enter(sampler)
    step(sampler, [first])
    sampler.leave(0)
    assert len(sampler) == 0
    second.enter(sampler)
    for _ in range(20):
        step(sampler, [second])
    assert_undisturbed(second)


def test_a_row_holds_as_many_codes_as_it_may_whatever_others_may() -> None:
    sampler = nobody()
    for frames in (3, 7):
        sampler.join(SamplingParams(ban_tokens=(STOP,)), 1, max_frames=frames)
    for _ in range(9):
        codes = sampler.step(torch.zeros(2, VOCAB))
    assert codes.tolist() == [STOP, STOP]
    assert sampler.lengths.tolist() == [3, 7]
    sampler.leave(1)
    assert (sampler.lengths.tolist(), tuple(sampler.codes.shape)) == ([3], (1, 3))


def test_what_left_is_a_copy_that_later_steps_do_not_touch() -> None:
    sampler = nobody()
    for seed in (1, 2):
        sampler.join(SamplingParams(ban_tokens=(STOP,), mirostat_mode=2), seed, max_frames=9)
    sampler.step(torch.zeros(2, VOCAB))
    gone = sampler.leave(0)
    held = {name: tensor.clone() for name, tensor in tensors(gone).items()}
    sampler.rejoin(gone)
    sampler.step(torch.zeros(2, VOCAB))
    for name, tensor in tensors(gone).items():
        assert torch.equal(tensor, held[name]), name


def tensors(memory: SamplerState) -> dict[str, Tensor]:
    own: dict[str, Any] = {one.name: getattr(memory, one.name) for one in fields(SamplerState)}
    own |= {"codes": memory.history.codes, "lengths": memory.history.lengths}
    return {name: value for name, value in own.items() if isinstance(value, Tensor)}


@pytest.mark.parametrize(
    "knobs",
    [
        {"dry_multiplier": 1.0, "dry_allowed_length": 1},
        {"dry_multiplier": 1.0, "dry_allowed_length": 1, "penalty_includes_prompt": True},
        {"repetition_penalty": 1.5, "penalty_includes_prompt": True},
        {"frequency_penalty": 1.0, "no_repeat_ngram_size": 9},
    ],
)
def test_a_fork_goes_on_as_a_row_that_drew_the_other_code(knobs: dict[str, Any]) -> None:
    forked, straight = nobody(), nobody()
    for sampler, codes in ((forked, (1, 2, 3, 1, 2)), (straight, (1, 2, 3, 1, 4))):
        sampler.join(SamplingParams(**knobs), 1, max_frames=30, prompt=PROMPT)
        for code in codes:
            sampler.step(only(code))
    forked.fork(0, 5, 4, 1)
    assert forked.codes[:, :5].tolist() == [[1, 2, 3, 1, 2], [1, 2, 3, 1, 4]]
    traces = Trace(), Trace()
    for step in range(3):  # what a row may draw is a function of its codes
        forked.step(logits_of(step, 0).expand(2, VOCAB), traces[0])
        straight.step(logits_of(step, 0)[None], traces[1])
        found, wanted = traces[0].row(1)[-1], traces[1].row(0)[-1]
        for name in ("frame", "attempt", "entropy_bits", "changed", "stop_rank"):
            assert found[name] == wanted[name], name
        for sampler in (forked, straight):
            sampler.step(only(7).expand(len(sampler), VOCAB))
            sampler.rewind(len(sampler) - 1, 5)
    if knobs.get("no_repeat_ngram_size"):
        assert torch.equal(forked.history.runs[1, :5], straight.history.runs[0, :5])


def only(code: int) -> Tensor:
    return torch.full((1, VOCAB), -30.0).index_fill(1, torch.tensor([code]), 30.0)


def test_forks_with_other_numbers_draw_otherwise_and_the_row_itself_as_before() -> None:
    samplers = nobody(), nobody()
    for sampler in samplers:
        sampler.join(SamplingParams(ban_tokens=(STOP,)), 1, max_frames=30)
        sampler.step(torch.zeros(1, VOCAB))
    code = int(samplers[0].codes[0, 0])
    samplers[0].fork(0, 1, code, 1)
    samplers[0].fork(0, 1, code, 2)
    for _ in range(20):
        samplers[0].step(torch.zeros(3, VOCAB))
        samplers[1].step(torch.zeros(1, VOCAB))
    assert torch.equal(samplers[0].codes[0], samplers[1].codes[0])
    assert len({tuple(row) for row in samplers[0].codes[:, :21].tolist()}) == 3

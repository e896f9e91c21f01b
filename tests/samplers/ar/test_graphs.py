"""What is played from a recording draws what the chain draws, whoever comes, goes and goes back."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from samplers.ar.graphs import SETTLED, GraphSampler
from samplers.ar.sampler import ArSampler
from samplers.ar.trace import Trace
from samplers.knobs.params import SamplingParams
from tests.samplers.ar.test_sampler import STOP, VOCAB
from tests.samplers.reference.harness import attention

CPU = torch.device("cpu")
PROMPT = torch.tensor([3, 7, 9, 3, 7])
STAYS = [
    SamplingParams(),
    SamplingParams(temperature=0.0),
    SamplingParams(temperature=0.7, top_k=5, top_p=0.9, min_p=0.02),
    SamplingParams(repetition_penalty=1.3, repetition_penalty_window=4, presence_penalty=0.2),
    SamplingParams(logit_bias={2: 4.0}, ban_tokens=(3, STOP), min_frames=6),
    SamplingParams(temperature=1.4, min_temperature=0.3, typical_p=0.9, sampler_order="llama"),
    SamplingParams(xtc_probability=0.5, top_n_sigma=2.0, length_penalty=0.5),
    SamplingParams(mirostat_mode=2, mirostat_tau=1.5),
    SamplingParams(ras=True, ras_window=5),
    SamplingParams(
        repetition_penalty=1.4, repetition_penalty_window=3, penalty_includes_prompt=True
    ),
]
"""Params of rows whose steps can be recorded."""
GROWS = [
    SamplingParams(repetition_penalty=1.3),
    SamplingParams(dry_multiplier=1.0),
    SamplingParams(no_repeat_ngram_size=2),
    SamplingParams(entropix=True),
    SamplingParams(beam_width=2, temperature=0.0),
]
"""Params of rows whose steps cannot."""


class Pair:
    """A sampler that plays, and one that never does, with the same rows."""

    def __init__(self, device: torch.device = CPU) -> None:
        self.recorded = self.played = 0
        shape: dict[str, Any] = {"stop_token": STOP, "vocab_size": VOCAB, "device": device}
        self.plain = ArSampler(**shape)
        self.replayed = GraphSampler(self._record, **shape)
        self.both = (self.plain, self.replayed)
        self._steps = 0

    def _record(self, function: Callable[[], None]) -> Callable[[], None]:
        self.recorded += 1

        def play() -> None:
            self.played += 1
            function()

        return play

    def join(self, params: SamplingParams, seed: int, max_frames: int = 100) -> None:
        for sampler in self.both:
            sampler.join(params, seed, max_frames=max_frames, prompt=PROMPT)

    def step(self, *, tracing: bool = False) -> None:
        self._steps += 1
        generator = torch.Generator().manual_seed(self._steps)
        logits = torch.randn(len(self.plain), VOCAB, generator=generator) * 2
        logits[:, STOP] -= 4
        seen = attention([[0.5] * 4] * len(logits))
        codes = [
            sampler.step(logits, Trace() if tracing else None, attention=seen)
            for sampler in self.both
        ]
        assert torch.equal(*codes)
        for name in ("lengths", "stopped", "codes"):
            assert torch.equal(getattr(self.plain, name), getattr(self.replayed, name))
        assert self.plain.history.longest == self.replayed.history.longest


def test_rows_that_stay_are_drawn_from_one_recording_as_without() -> None:
    pair = Pair()
    for seed, params in enumerate(STAYS):
        pair.join(params, seed)
    for _ in range(60):
        pair.step()
    assert (pair.recorded, pair.played) == (1, 60 - SETTLED - 5)  # five frames are looked back at


@pytest.mark.parametrize("number", range(len(STAYS)))
def test_each_kind_of_row_can_be_recorded(number: int) -> None:
    pair = Pair()
    pair.join(STAYS[number], number)
    for _ in range(30):
        pair.step()
    assert pair.played > 15


def test_rows_that_come_go_and_go_back_are_drawn_as_without() -> None:
    pair = Pair()
    for number in range(40):
        if number % 2 or len(pair.plain) < 2:
            pair.join(STAYS[number % len(STAYS)], number)
        else:
            place = number % len(pair.plain)
            kept = [sampler.leave(place) for sampler in pair.both]
            if number % 3:  # it only waited
                for sampler, memory in zip(pair.both, kept, strict=True):
                    sampler.rejoin(memory)
        for step in range(number % 25):
            pair.step(tracing=step % 9 == 4)
            if step % 7 == 6:
                for sampler in pair.both:
                    sampler.rewind(0, int(sampler.lengths[0]) // 2)
    assert pair.recorded > 5
    assert pair.played > 100


def test_a_full_row_and_one_that_stopped_stay_so() -> None:
    pair = Pair()
    pair.join(SamplingParams(ban_tokens=(STOP,)), 0, max_frames=15)
    pair.join(SamplingParams(logit_bias={STOP: 50.0}, min_frames=13), 1, max_frames=99)
    for _ in range(30):
        pair.step()
    assert pair.replayed.lengths.tolist() == [15, 13]
    assert pair.replayed.stopped.all()


@pytest.mark.parametrize("params", GROWS)
def test_what_looks_at_the_host_or_ever_farther_back_is_never_recorded(
    params: SamplingParams,
) -> None:
    pair = Pair()
    pair.join(SamplingParams(), 0)
    pair.join(params, 1)
    for _ in range(30):
        pair.step()
    assert pair.recorded == 0


def test_what_it_gave_is_not_overwritten_by_the_next_step() -> None:
    pair = Pair()
    pair.join(SamplingParams(ban_tokens=(STOP,)), 0)
    logits = torch.randn(50, 1, VOCAB)
    codes = [pair.replayed.step(one) for one in logits]
    assert torch.cat(codes).tolist() == pair.replayed.codes[0, :50].tolist()
    assert len(set(torch.cat(codes).tolist())) > 5


def test_a_step_that_can_be_recorded_asks_a_device_nothing() -> None:
    """A device whose tensors have no contents stands for a GPU: whoever reads one is refused."""
    recorded: list[Callable[[], None]] = []

    def record(step: Callable[[], None]) -> Callable[[], None]:
        recorded.append(step)
        return step

    sampler = GraphSampler(record, stop_token=STOP, vocab_size=VOCAB, device=torch.device("meta"))
    for seed, params in enumerate(STAYS):
        sampler.join(params, seed, max_frames=100)
    logits: Tensor = torch.zeros(len(sampler), VOCAB, device="meta")
    for _ in range(SETTLED + 6):  # five frames are looked back at
        assert sampler.step(logits).is_meta
    assert len(recorded) == 1

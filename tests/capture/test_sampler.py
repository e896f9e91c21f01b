"""The recorded step of the sampler, replayed from tape: what the chain draws without one."""

from collections.abc import Callable

import pytest
import torch

from samplers.ar.graphs import SETTLED, GraphSampler
from samplers.ar.sampler import ArSampler
from samplers.knobs.params import SamplingParams
from samplers.ops import filters
from tests.capture.tape import Tape
from tests.capture.watch import NotCaptureSafe
from tests.samplers.ar.test_graphs import STAYS, Pair
from tests.samplers.ar.test_sampler import STOP, VOCAB

Patch = pytest.MonkeyPatch


class Taped(Pair):
    """A sampler that is replayed from tape, and one that never is, with the same rows."""

    def __init__(self) -> None:
        super().__init__()
        self.tape = Tape()
        self.replayed = GraphSampler(
            self.tape.record, stop_token=STOP, vocab_size=VOCAB, device=torch.device("cpu")
        )
        self.both = (self.plain, self.replayed)


def steps(pair: Pair, count: int = 40) -> None:
    """Draw so many codes with both, which must be equal."""
    for _ in range(count):
        pair.step()


@pytest.fixture(autouse=True)
def sorted_as_on_a_gpu(monkeypatch: Patch) -> None:
    """On a CPU `filters.descending` sorts by NumPy, which no graph could hold."""
    monkeypatch.setattr(
        filters, "descending", lambda logits: logits.sort(-1, descending=True).values
    )


@pytest.mark.parametrize("number", range(len(STAYS)))
def test_each_kind_of_row_replays_from_tape(number: int) -> None:
    pair = Taped()
    pair.join(STAYS[number], number)
    for _ in range(SETTLED + 20):
        pair.step()

    assert pair.tape.plays >= 10


def test_unlike_rows_replay_together() -> None:
    pair = Taped()
    for seed, params in enumerate(STAYS):
        pair.join(params, seed)
    for _ in range(50):
        pair.step()

    assert pair.tape.plays > 30
    assert len(pair.tape.sizes) == 1


def test_rows_that_join_leave_and_are_rewound_replay_alike() -> None:
    pair = Taped()
    for number in range(12):
        if number % 2 or len(pair.plain) < 2:
            pair.join(STAYS[number % len(STAYS)], number)
        else:
            kept = [sampler.leave(0) for sampler in pair.both]
            if number % 3:
                for sampler, memory in zip(pair.both, kept, strict=True):
                    sampler.rejoin(memory)
        for step in range(SETTLED + 12):
            pair.step(tracing=step % 9 == 4)
            if step % 7 == 6:
                for sampler in pair.both:
                    sampler.rewind(0, int(sampler.lengths[0]) // 2)

    assert pair.tape.plays > 50


# What the tests above must not let pass.


def _baked_logits(patch: Patch) -> None:
    """The logits are those of the first step."""
    advance = ArSampler.advance
    frozen: dict[int, torch.Tensor] = {}

    def wrong(self: ArSampler, logits: torch.Tensor, *args: object) -> object:
        seed = frozen.setdefault(id(self), logits.clone())
        return advance(self, seed if type(self) is GraphSampler else logits, *args)  # type: ignore[arg-type]

    patch.setattr(ArSampler, "advance", wrong)


def _new_buffer(patch: Patch) -> None:
    """The logits' buffer is another one after the recording."""
    recorded = GraphSampler._recorded

    def wrong(self: GraphSampler, logits: torch.Tensor) -> Callable[[], None]:
        play = recorded(self, logits)
        self._logits = self._logits.clone()
        return play

    patch.setattr(GraphSampler, "_recorded", wrong)


def _stale_codes(patch: Patch) -> None:
    """What is drawn is not copied out."""
    recorded = GraphSampler._recorded

    def wrong(self: GraphSampler, logits: torch.Tensor) -> Callable[[], None]:
        play = recorded(self, logits)
        self._codes = self._codes.clone()
        return play

    patch.setattr(GraphSampler, "_recorded", wrong)


@pytest.mark.parametrize("fault", [_baked_logits, _new_buffer, _stale_codes])
def test_a_seeded_fault_shows(fault: Callable[[Patch], None], monkeypatch: Patch) -> None:
    fault(monkeypatch)
    pair = Taped()
    pair.join(SamplingParams(repetition_penalty=1.5, repetition_penalty_window=3), 3)

    with pytest.raises(AssertionError):
        steps(pair)


def test_a_seeded_wait_shows(monkeypatch: Patch) -> None:
    sanitise = filters.sanitise

    def wrong(logits: torch.Tensor) -> torch.Tensor:
        return sanitise(logits) if bool(logits.isfinite().all()) else logits

    monkeypatch.setattr(filters, "sanitise", wrong)
    pair = Taped()
    pair.join(SamplingParams(), 1)

    with pytest.raises(NotCaptureSafe):
        steps(pair)

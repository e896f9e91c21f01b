"""The recorded step of the stack, replayed from tape, is the step without a recording."""

from collections.abc import Callable, Iterator

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from models.stack import step_graphs
from models.stack.fixed_step import FixedStep
from tests.capture.tape import Tape
from tests.capture.watch import NotCaptureSafe, Watch
from tests.models.stack.stacks import vectors
from tests.models.stack.test_step_graphs import CLOSE, SLOTS, Both

Patch = pytest.MonkeyPatch
ROOM = 300


@pytest.fixture(autouse=True)
def on_tape(monkeypatch: Patch) -> Iterator[None]:
    monkeypatch.setattr(step_graphs, "Recorder", Tape)
    with torch.inference_mode():
        yield


def difference(both: Both, slots: list[int], seed: int) -> float:
    """Return the greatest difference between the replayed step and the other."""
    found, expected = both.step(slots, seed)
    return float((found - expected).abs().max())


def worst(both: Both, steps: int = 12) -> float:
    """Return the greatest difference over joins, a rewind, a leave and steps of changing rows."""
    differences = []
    both.extend(0, 7)
    both.extend(2, 250, seed=2)
    for seed in range(steps):
        if seed == 4:
            both.rewind(2, 100)
        if seed == 6:
            both.extend(1, 3, seed=1)
        if seed == 9:
            both.rewind(0, 0)
        slots = [[0, 2], [2, 0], [2]][seed % 3] if seed < 6 else [2, 1]
        differences.append(difference(both, slots, seed))
    return max(differences)


def test_replays_are_the_step_over_joins_leaves_and_rewinds() -> None:
    both = Both(room=ROOM)

    assert worst(both) < CLOSE


@settings(max_examples=10)
@given(st.data())
def test_any_order_of_joins_leaves_rewinds_and_steps_replays_alike(data: st.DataObject) -> None:
    with torch.inference_mode():
        both, used = Both(room=ROOM), set[int]()
        for seed in range(data.draw(st.integers(3, 12))):
            deed = data.draw(st.sampled_from(["join", "leave", "rewind", "step", "step"]))
            slot = data.draw(st.integers(0, SLOTS - 1))
            if deed == "join" and slot not in used:
                both.extend(slot, data.draw(st.sampled_from([1, 7, 255])), seed)
                used.add(slot)
            elif deed == "leave" and slot in used:
                both.rewind(slot, 0)
                used.remove(slot)
            elif deed == "rewind" and slot in used:
                both.rewind(slot, max(1, both.free.lengths[slot] // 2))
            elif used:
                rows = st.lists(st.sampled_from(sorted(used)), min_size=1, unique=True)
                assert difference(both, data.draw(rows), seed) < CLOSE


def test_the_step_around_the_graph_neither_waits_nor_copies_but_for_the_lengths() -> None:
    both = Both(room=ROOM)
    both.extend(0, 5)
    x, at = vectors(1), torch.tensor([5])
    with Watch("count").on() as watch:
        both.fixed_stack.step(x, at, both.fixed, [0])

    # One upload of pinned numbers, and the index of the rows, both made of numbers of the host.
    assert watch.waits.total() <= 1, watch.waits


# What the tests above must not let pass: each is a mistake that a capture forgives.


def _host_length(patch: Patch) -> None:
    """The host's lengths stand in the graph."""
    run = FixedStep.run

    def wrong(self: FixedStep, rows: int, reach: int) -> None:
        self.lengths.copy_(torch.full_like(self.lengths, self._cache.lengths[0]))
        run(self, rows, reach)

    patch.setattr(FixedStep, "run", wrong)


def _fixed_positions(patch: Patch) -> None:
    """The positions are numbers of the host, read when it was recorded."""
    run = FixedStep.run

    def wrong(self: FixedStep, rows: int, reach: int) -> None:
        self.positions.fill_(3)
        run(self, rows, reach)

    patch.setattr(FixedStep, "run", wrong)


def _new_buffer(patch: Patch) -> None:
    """The inputs' buffer is another one after the recording."""
    made = step_graphs.StepGraphs.__init__

    def wrong(self: step_graphs.StepGraphs, step: FixedStep, cache: object) -> None:
        made(self, step, cache)  # type: ignore[arg-type]
        step.inputs = step.inputs.clone()

    patch.setattr(step_graphs.StepGraphs, "__init__", wrong)


def _stale_result(patch: Patch) -> None:
    """The result is not written out."""
    run = FixedStep.run

    def wrong(self: FixedStep, rows: int, reach: int) -> None:
        kept = self.hidden.clone()
        run(self, rows, reach)
        self.hidden.copy_(kept)

    patch.setattr(FixedStep, "run", wrong)


@pytest.mark.parametrize("fault", [_host_length, _fixed_positions, _new_buffer, _stale_result])
def test_a_seeded_fault_shows(fault: Callable[[Patch], None], monkeypatch: Patch) -> None:
    fault(monkeypatch)

    assert not worst(Both(room=ROOM)) < CLOSE


def test_a_seeded_wait_shows(monkeypatch: Patch) -> None:
    run = FixedStep.run

    def wrong(self: FixedStep, rows: int, reach: int) -> None:
        run(self, rows, int(self.lengths.max()) + reach)

    monkeypatch.setattr(FixedStep, "run", wrong)

    with pytest.raises(NotCaptureSafe, match="int"):
        Both(room=ROOM)

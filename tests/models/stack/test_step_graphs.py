"""A step in shapes that never change is the step that knows how long everything is."""

from collections.abc import Iterator, Sequence

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from models.stack.cache import KVCache
from models.stack.step_graphs import StepGraphs, buckets
from models.stack.transformer import Transformer
from tests.models.stack.stacks import CONFIG, make_stack, vectors

SLOTS, ROOM = 6, 600
CLOSE = 1e-5
"""Of vectors whose entries are about 1; the two differ in the order of their float32 sums."""


@pytest.fixture(autouse=True)
def without_gradients() -> Iterator[None]:
    with torch.inference_mode():
        yield


class Both:
    """Two caches that hold the same, of which one is recorded."""

    def __init__(self, slots: int = SLOTS, room: int = ROOM) -> None:
        self.fixed_stack, self.stack = make_stack(), make_stack()
        self.fixed, self.free = (KVCache(CONFIG, slots, room) for _ in range(2))
        self.fixed_stack.record(self.fixed)

    def extend(self, slot: int, count: int, seed: int = 0) -> None:
        start = self.free.lengths[slot]
        x, at = vectors(count, seed), torch.arange(start, start + count)
        for stack, cache in ((self.fixed_stack, self.fixed), (self.stack, self.free)):
            stack.extend(x, at, cache, slot, at)

    def step(self, slots: Sequence[int], seed: int = 0) -> tuple[Tensor, Tensor]:
        """Return what each gives for the same new rows."""
        x = vectors(len(slots), seed)
        at = torch.tensor([self.free.lengths[slot] for slot in slots])
        found = self.fixed_stack.step(x, at, self.fixed, slots)
        expected = self.stack.step(x, at, self.free, slots)
        assert self.fixed.lengths == self.free.lengths
        return found, expected

    def rewind(self, slot: int, length: int) -> None:
        self.fixed.rewind(slot, length)
        self.free.rewind(slot, length)

    def held(self) -> list[Tensor]:
        """Return copies of the recorded cache's keys and values, slot by slot."""
        return [
            torch.cat([part.clone() for part in self.fixed.rows(layer, slot)])
            for layer in range(CONFIG.layers)
            for slot in range(SLOTS)
        ]

    @property
    def graphs(self) -> StepGraphs:
        assert self.fixed_stack._graphs is not None
        return self.fixed_stack._graphs


def assert_close(found: Tensor, expected: Tensor) -> None:
    assert (found - expected).abs().max() < CLOSE


def test_buckets_double_and_end_with_the_whole() -> None:
    assert list(buckets(1, 32)) == [1, 2, 4, 8, 16, 32]
    assert list(buckets(256, 600)) == [256, 512, 600]
    assert list(buckets(256, 100)) == [100]


@pytest.mark.parametrize("slots", [[0], [1], [1, 0], [2, 0, 1], [3], [5, 2, 0], [*range(SLOTS)]])
@pytest.mark.parametrize("length", [1, 254, 510])
def test_a_step_is_the_step_that_knows_the_lengths(slots: list[int], length: int) -> None:
    both = Both()
    for slot in slots:
        both.extend(slot, length + 3 * slot, seed=slot)
    for seed in range(5):  # over a border of the columns
        assert_close(*both.step(slots, seed))


def test_the_size_is_the_least_that_holds_the_batch() -> None:
    both = Both()
    both.extend(1, 255)
    assert both.graphs.size([0]) == (1, 256)
    assert both.graphs.size([1]) == (2, 256)
    both.step([1])
    assert both.graphs.size([1, 2]) == (4, 512)
    assert both.graphs.size([0, 4]) == (6, 256)


@settings(max_examples=15, deadline=None)
@given(st.data())
def test_whoever_joins_leaves_pauses_and_goes_back_finds_its_own(data: st.DataObject) -> None:
    with torch.inference_mode():
        both, used = Both(), set[int]()
        for seed in range(data.draw(st.integers(3, 20))):
            deed = data.draw(st.sampled_from(["join", "join", "leave", "rewind", "step", "step"]))
            slot = data.draw(st.integers(0, SLOTS - 1))
            if deed == "join" and slot not in used:
                both.extend(slot, data.draw(st.sampled_from([1, 7, 255, 300])), seed)
                used.add(slot)
            elif deed == "leave" and slot in used:
                both.rewind(slot, 0)
                used.remove(slot)
            elif deed == "rewind" and slot in used:
                both.rewind(slot, max(1, both.free.lengths[slot] // 2))
            elif used:
                stepped = data.draw(
                    st.lists(st.sampled_from(sorted(used)), min_size=1, unique=True)
                )
                assert_close(*both.step(stepped, seed))


def test_a_step_touches_nothing_that_idle_slots_hold() -> None:
    both = Both()
    for slot in range(SLOTS):
        both.extend(slot, 20 + slot, seed=slot)
    before = both.held()
    both.step([1, 4])
    both.rewind(1, 21)
    both.rewind(4, 24)
    for old, new in zip(before, both.held(), strict=True):
        assert torch.equal(old, new)


def test_a_full_idle_slot_keeps_its_last_row() -> None:
    both = Both()
    both.extend(0, ROOM)
    both.extend(2, 5)
    before = both.held()[0]
    assert both.graphs.size([2]) is None
    assert_close(*both.step([2]))
    assert torch.equal(both.held()[0], before)


def test_a_full_slot_is_refused_and_none_has_grown() -> None:
    both = Both()
    both.extend(0, ROOM)
    both.extend(1, 5)
    with pytest.raises(ValueError, match="slot 0 holds 600"):
        both.fixed_stack.step(vectors(2), torch.tensor([5, 600]), both.fixed, [1, 0])
    assert both.fixed.lengths[:2] == [ROOM, 5]


@pytest.mark.parametrize("broken", [torch.nan, torch.inf, -torch.inf])
def test_what_is_no_number_spoils_neither_neighbours_nor_the_next_of_its_slot(
    broken: float,
) -> None:
    both, at = Both(), torch.tensor([3, 3])
    for slot in (0, 1):
        both.extend(slot, 3, seed=slot)
    x = vectors(2)
    expected = both.stack.step(x, at, both.free, [0, 1])
    x[1, 5] = broken
    found = both.fixed_stack.step(x, at, both.fixed, [0, 1])
    assert_close(found[0], expected[0])
    assert not found[1].isfinite().all()
    both.rewind(1, 0)
    assert (
        not both.fixed_stack
        .extend(x[1:].expand(9, -1), torch.arange(9), both.fixed, 1)
        .isfinite()
        .all()
    )
    both.fixed.rewind(1, 0)
    both.extend(1, 2, seed=7)  # the broken rows lie behind its end
    for seed in range(3):
        assert_close(*both.step([0, 1], seed))


def test_steps_make_no_new_storage_for_what_they_keep() -> None:
    both = Both()
    step = both.graphs._step
    kept = [
        *both.fixed.keys, *both.fixed.values, step.inputs, step.positions, step.numbers,
        step.lengths, step.order, step.hidden, step.queries,
    ]  # fmt: skip
    places = [tensor.data_ptr() for tensor in kept]
    for slots in ([0], [2, 0], [5, 1, 3]):
        both.step(slots)
    assert [tensor.data_ptr() for tensor in kept] == places
    assert step.numbers.tolist() == [[2, 0, 1, 0, 0, 0], [5, 1, 3, 0, 0, 0]]


def test_what_a_step_gave_is_not_overwritten_by_the_next() -> None:
    both = Both()
    first, expected = both.step([0, 1])
    both.step([0, 1], seed=1)
    assert_close(first, expected)


def test_the_attention_of_a_recorded_step_is_told_as_that_of_any() -> None:
    both = Both()
    for slot in (0, 2):
        both.extend(slot, 9 + slot, seed=slot)
    x, at = vectors(2), torch.tensor([9, 11])
    _, found = both.fixed_stack.step_with_attention(x, at, both.fixed, [0, 2], [1])
    _, expected = both.stack.step_with_attention(x, at, both.free, [0, 2], [1])
    for name in ("entropy", "varentropy", "agreement", "strength"):
        assert_close(getattr(found, name), getattr(expected, name))


def test_another_cache_of_a_recorded_stack_steps_as_ever() -> None:
    both, other = Both(), KVCache(CONFIG, SLOTS, ROOM)
    x, at = vectors(1), torch.tensor([0])
    assert torch.equal(
        both.fixed_stack.step(x, at, other, [3]), both.stack.step(x, at, both.free, [3])
    )
    assert other.lengths[3] == 1
    assert both.fixed.lengths == [0] * SLOTS


def test_a_cache_that_holds_something_is_not_recorded() -> None:
    both = Both()
    both.extend(0, 1)
    with pytest.raises(ValueError, match="holds something"):
        both.stack.record(both.free)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_step_asks_a_device_nothing_and_leaves_nothing_on_the_host(dtype: torch.dtype) -> None:
    """A device whose tensors have no contents stands for a GPU: whoever reads one is refused."""
    stack = Transformer(CONFIG).requires_grad_(False).to("meta")
    for parameter in stack.parameters():
        parameter.data = parameter.data.to(dtype)
    cache = KVCache(CONFIG, SLOTS, ROOM, dtype=dtype, device="meta")
    stack.record(cache)
    x = torch.zeros(20, CONFIG.width, dtype=dtype, device="meta")
    at = torch.arange(20, device="meta")
    for hidden in (
        stack.extend(x, at, cache, 0, at),
        stack.step(x[:2], at[:2], cache, [1, 0]),
        stack(x[None], at[None]),
    ):
        assert hidden.is_meta
        assert hidden.dtype == dtype
    assert cache.lengths[:2] == [21, 1]

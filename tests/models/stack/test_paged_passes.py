"""Sequences in pages, extended and stepped in the shapes of a recording, are what each is alone."""

from collections.abc import Iterator, Sequence

import pytest
import torch
from torch import Tensor

from models.cuda.kernels.choice import FUSED, TORCH, Kernels
from models.stack.cache import KVCache
from models.stack.paged_cache import PAGE, OutOfPages, PagePool
from models.stack.paged_passes import Placed
from models.stack.transformer import Transformer
from tests.models.stack.stacks import CONFIG, META, make_stack, pool_of, vectors

SLOTS, BLOCK, FRAMES, PAGES = 6, 5, 20, 4
CLOSE = 1e-5
"""Of vectors whose entries are about 1; the two differ in the order of their float32 sums."""


@pytest.fixture(autouse=True, params=[FUSED, TORCH], ids=["fused", "torch"])
def kernels(request: pytest.FixtureRequest) -> Iterator[None]:
    """Every test with kernels of our own, and with torch's."""
    Both.kernels = request.param
    with torch.inference_mode():
        yield


def reach_of(mask: str) -> Tensor:
    each = torch.arange(FRAMES)
    return each + 1 if mask == "causal" else (each // BLOCK + 1) * BLOCK


class Both:
    """Sequences that hold the same in pages and in memory of their own."""

    kernels: Kernels

    def __init__(self, lengths: Sequence[int], mask: str = "causal") -> None:
        self.stack, self.mask = make_stack(), mask
        self.stack.kernels = self.kernels
        self.pool = pool_of(60)
        self.passes = self.stack.paged(self.pool)
        self.paged = self.pool.new_cache(SLOTS, PAGES * PAGE)
        self.own = KVCache(CONFIG, SLOTS, PAGES * PAGE)
        for slot, length in enumerate(lengths):
            at = torch.arange(length)
            for cache in (self.paged, self.own):
                if length:
                    self.stack.extend(vectors(length, slot), at, cache, slot, at)

    def table(self, counts: Sequence[int]) -> Tensor:
        """Return the pages of the first slots, with room for so many new positions."""
        table = torch.full((len(counts), PAGES), self.pool.padding)
        for slot, count in enumerate(counts):
            if count:
                self.paged.reserve(slot, self.paged.lengths[slot] + count)
            pages = self.paged.pages(slot)
            table[slot, : len(pages)] = torch.tensor(pages)
        return table

    def assert_same(self, slot: int, found: Tensor, expected: Tensor) -> None:
        assert (found - expected).abs().max() < CLOSE
        keys, kept = (cache.keys_of(-1, slot) for cache in (self.paged, self.own))
        assert (keys - kept).abs().max() < CLOSE

    def extend(self, counts: Sequence[int], seed: int = 0) -> None:
        """Extend the first slots as a recording does: all by as much, with padding."""
        lengths, table = self.paged.lengths[: len(counts)], self.table(counts)
        x = torch.stack([vectors(FRAMES, seed * 10 + row) for row in range(len(counts))])
        at = torch.tensor(lengths)
        positions = at[:, None] + torch.arange(FRAMES)
        layout = self.passes.layout(positions, at, torch.tensor(counts), reach_of(self.mask))
        found, _ = self.passes.run(x.flatten(0, 1), layout(table))
        for slot, (count, own) in enumerate(zip(counts, found.split(FRAMES), strict=True)):
            frames = torch.arange(count)
            ranks = frames if self.mask == "causal" else frames // BLOCK
            new = x[slot, :count], lengths[slot] + frames, self.own, slot, ranks
            self.paged.advance(slot, count)
            self.assert_same(slot, own[:count], self.stack.extend(*new))

    def step(self, slots: Sequence[int], seed: int = 0) -> None:
        """Step some slots as a recording does: among the first rows, of which others are idle."""
        count = max(slots) + 1
        at = torch.tensor(self.own.lengths[:count])
        table, x = self.table([int(slot in slots) for slot in range(count)]), vectors(count, seed)
        places = table.gather(1, at[:, None] // PAGE)[:, 0] * PAGE + at % PAGE
        placed = Placed(self.passes.rotations[at], places, at[:, None] + 1, table)
        found, _ = self.passes.run(x, placed)
        expected = self.stack.step(x[list(slots)], at[list(slots)], self.own, slots)
        for slot, one in zip(slots, expected, strict=True):
            self.paged.advance(slot, 1)
            self.assert_same(slot, found[slot], one)


@pytest.mark.parametrize("mask", ["causal", "block_causal"])
@pytest.mark.parametrize("counts", [[20, 20, 20, 20], [20, 7, 1, 15], [3, 20, 20, 20]])
def test_each_is_extended_as_by_itself(mask: str, counts: list[int]) -> None:
    both = Both([PAGE - 3, 1, 2 * PAGE, 70], mask)
    for seed in range(3):  # over borders of pages
        both.extend(counts, seed)


@pytest.mark.parametrize("slots", [[0], [1, 0], [2, 0, 1], [3], [5, 2, 0], [*range(SLOTS)]])
@pytest.mark.parametrize("length", [1, 3 * PAGE - 18])
def test_a_step_is_the_step_that_knows_the_lengths(slots: list[int], length: int) -> None:
    both = Both([length + 3 * slot if slot in slots else 0 for slot in range(SLOTS)])
    for seed in range(5):  # over a border of pages
        both.step(slots, seed)


def test_in_8_bits_they_differ_by_what_rounding_costs() -> None:
    both, frames = Both([PAGE - 3]), torch.arange(FRAMES)
    pool = pool_of(9, torch.int8)
    assert pool.page_bytes < both.pool.page_bytes / 2
    eight = pool.new_cache(1, PAGES * PAGE)
    at = torch.arange(PAGE - 3)
    both.stack.extend(vectors(len(at), 0), at, eight, 0, at)
    at = both.own.lengths[0] + frames
    found, exact = (
        both.stack.extend(vectors(FRAMES, 9), at, cache, 0, frames) for cache in (eight, both.own)
    )
    assert 0 < (found - exact).abs().max() < 0.05
    keys, kept = (cache.keys_of(0, 0) for cache in (eight, both.own))
    half_a_step = kept.abs().amax(-1, keepdim=True) / 127 / 2
    assert ((keys - kept).abs() < half_a_step + CLOSE).all()


def test_slots_extended_at_once_hold_what_each_does_that_is_extended_by_itself() -> None:
    both, slots = Both([PAGE - 3, 0, 5]), [2, 0, 1]
    x, at = torch.stack([vectors(FRAMES, slot) for slot in slots]), 7 + torch.arange(FRAMES)
    both.passes.extend_each(x, at.expand(3, -1), both.paged, slots, reach_of("causal"))
    for slot, one in zip(slots, x, strict=True):
        both.stack.extend(one, at, both.own, slot, at)
        both.assert_same(slot, torch.zeros(1), torch.zeros(1))
    assert both.paged.lengths == both.own.lengths


def test_slots_extended_at_once_need_room_in_the_pool() -> None:
    stack, pool = make_stack(), pool_of(2)
    cache, at = pool.new_cache(3, PAGE), torch.zeros(3, 1, dtype=torch.int64)
    with pytest.raises(OutOfPages):
        stack.paged(pool).extend_each(torch.zeros(3, 1, CONFIG.width), at, cache, [0, 1, 2], at[0])
    assert cache.lengths == [0, 0, 0]
    with pytest.raises(ValueError, match="need a PagedCache"):
        stack.paged(pool).step(vectors(1), at[0], KVCache(CONFIG, 1, 9), [0])


def test_padding_and_idle_rows_touch_no_page_that_others_have() -> None:
    both = Both([PAGE, 30, 20])
    held, before = [both.paged.keys_of(0, slot) for slot in range(3)], both.pool.keys[0].clone()
    both.extend([1, 1])
    both.step([1])
    for slot, kept in enumerate(held):
        assert torch.equal(both.paged.keys_of(0, slot)[:, : kept.shape[1]], kept)
    changed = (both.pool.keys[0] != before).flatten(1).any(1).nonzero()[:, 0] // PAGE
    own = {both.paged.pages(slot)[-1] for slot in range(2)}
    assert {int(page) for page in changed} <= own | {both.pool.padding}


@pytest.mark.parametrize("broken", [torch.nan, torch.inf, -torch.inf])
def test_what_is_no_number_spoils_neither_neighbours_nor_the_next_of_its_slot(broken) -> None:
    both, at = Both([10, 20]), torch.arange(3)
    x = vectors(3).index_fill(1, torch.tensor([5]), broken)
    assert not both.stack.extend(x, at, both.paged, 2, at).isfinite().all()
    both.paged.rewind(2, 0)
    for cache in (both.paged, both.own):
        both.stack.extend(vectors(2, 7), at[:2], cache, 2, at[:2])
    both.extend([20, 20])
    for seed in range(3):  # the broken positions lie behind its end
        both.step([0, 1, 2], seed)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_pass_asks_a_device_nothing(dtype: torch.dtype) -> None:
    """A device whose tensors have no contents stands for a GPU: whoever reads one is refused."""
    stack = Transformer(CONFIG).requires_grad_(False).to("meta")
    for parameter in stack.parameters():
        parameter.data = parameter.data.to(dtype)
    stack.kernels = Both.kernels
    passes = stack.paged(PagePool(CONFIG, 9, dtype=dtype, device=META))
    at, x = torch.ones(2, dtype=torch.int64, device="meta"), torch.zeros(2 * FRAMES, CONFIG.width)
    layout = passes.layout(at[:, None].expand(2, FRAMES), at, at, reach_of("causal").to("meta"))
    pages = torch.zeros(2, PAGES, dtype=torch.int64, device="meta")
    hidden, queries = passes.run(x.to("meta", dtype), layout(pages))
    assert hidden.is_meta
    assert hidden.dtype == queries.dtype == dtype

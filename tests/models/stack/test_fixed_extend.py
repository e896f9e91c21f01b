"""Sequences in pages that are extended together in fixed shapes are what each is by itself."""

from collections.abc import Iterator, Sequence

import pytest
import torch
from torch import Tensor

from models.cuda.kernels.choice import FUSED, TORCH, Kernels
from models.stack.cache import KVCache
from models.stack.paged_cache import PAGE, OutOfPages, PagedCache, PagePool
from models.stack.transformer import Transformer
from tests.models.stack.stacks import CONFIG, make_stack, vectors

CPU = torch.device("cpu")
BLOCK, FRAMES, COLUMNS = 5, 20, 4 * PAGE
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

    def __init__(self, lengths: Sequence[int], mask: str = "block_causal") -> None:
        self.stack, self.mask = make_stack(), mask
        self.stack.kernels = self.kernels
        self.pool = PagePool(CONFIG, 40, dtype=torch.float32, device=CPU)
        self.fixed = self.stack.fixed_extend(self.pool)
        self.paged: list[PagedCache] = []
        self.own: list[KVCache] = []
        for seed, length in enumerate(lengths):
            self.paged.append(self.pool.new_cache(1, COLUMNS))
            self.own.append(KVCache(CONFIG, 1, COLUMNS))
            at = torch.arange(length)
            for cache in (self.paged[-1], self.own[-1]):
                if length:
                    self.stack.extend(vectors(length, seed), at, cache, 0, at)

    def extend(self, counts: Sequence[int], seed: int = 0) -> None:
        lengths = [cache.lengths[0] for cache in self.paged]
        table = torch.full((len(counts), COLUMNS // PAGE), self.pool.padding)
        for row, (cache, count) in enumerate(zip(self.paged, counts, strict=True)):
            cache.reserve(0, lengths[row] + count)
            table[row, : len(cache.pages(0))] = torch.tensor(cache.pages(0))
        x = torch.stack([vectors(FRAMES, seed * 10 + row) for row in range(len(counts))])
        at = torch.tensor(lengths)
        layout = self.fixed.layout(at, at, torch.tensor(counts), reach_of(self.mask), COLUMNS)
        found = self.fixed.run(x.flatten(0, 1), table, layout).unflatten(0, (len(counts), -1))
        for row, count in enumerate(counts):
            start, frames = lengths[row], torch.arange(count)
            ranks = frames if self.mask == "causal" else frames // BLOCK
            expected = self.stack.extend(x[row, :count], start + frames, self.own[row], 0, ranks)
            self.paged[row].advance(0, count)
            assert (found[row, :count] - expected).abs().max() < CLOSE
            keys, kept = (cache[row].keys_of(-1, 0) for cache in (self.paged, self.own))
            assert (keys - kept).abs().max() < CLOSE


@pytest.mark.parametrize("mask", ["causal", "block_causal"])
@pytest.mark.parametrize("counts", [[20, 20, 20, 20], [20, 7, 1, 15], [3, 20, 20, 20]])
def test_each_is_extended_as_by_itself(mask: str, counts: list[int]) -> None:
    both = Both([PAGE - 3, 1, 2 * PAGE, 70], mask)
    for seed in range(3):  # over borders of pages
        both.extend(counts, seed)


def test_padding_touches_no_page_that_others_have() -> None:
    both = Both([PAGE, 30])
    held, before = [one.keys_of(0, 0).clone() for one in both.paged], both.pool.keys[0].clone()
    both.extend([1, 1])
    for kept, cache in zip(held, both.paged, strict=True):
        assert torch.equal(cache.keys_of(0, 0)[:, :-1], kept)
    changed = (both.pool.keys[0] != before).flatten(1).any(1).nonzero()[:, 0] // PAGE
    own = {cache.pages(0)[-1] for cache in both.paged}
    assert {int(page) for page in changed} <= own | {both.pool.padding}


@pytest.mark.parametrize("broken", [torch.nan, torch.inf])
def test_what_is_no_number_spoils_no_other_and_no_next(broken: float) -> None:
    both = Both([10, 20])
    x = torch.full((2 * FRAMES, CONFIG.width), broken)
    table = torch.full((2, COLUMNS // PAGE), both.pool.padding)
    at = torch.tensor([0, 0])
    layout = both.fixed.layout(at, at, at + 1, reach_of("causal"), COLUMNS)
    assert not both.fixed.run(x, table, layout).isfinite().all()
    both.extend([20, 20])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_an_extension_asks_a_device_nothing(dtype: torch.dtype) -> None:
    stack = Transformer(CONFIG).requires_grad_(False).to("meta")
    for parameter in stack.parameters():
        parameter.data = parameter.data.to(dtype)
    pool = PagePool(CONFIG, 9, dtype=dtype, device=torch.device("meta"))
    fixed, at = stack.fixed_extend(pool), torch.ones(2, dtype=torch.int64, device="meta")
    layout = fixed.layout(at, at, at, reach_of("causal").to("meta"), COLUMNS)
    x = torch.zeros(2 * FRAMES, CONFIG.width, dtype=dtype, device="meta")
    pages = torch.zeros(2, COLUMNS // PAGE, dtype=torch.int64, device="meta")
    assert fixed.run(x, pages, layout).dtype == dtype


@pytest.mark.parametrize("mask", ["causal", "block_causal"])
def test_slots_extended_at_once_hold_what_each_does_that_is_extended_by_itself(mask: str) -> None:
    stack = make_stack()
    pool = PagePool(CONFIG, 40, dtype=torch.float32, device=CPU)
    fixed = stack.fixed_extend(pool)
    together, alone = (pool.new_cache(4, COLUMNS) for _ in range(2))
    slots, positions = [3, 0, 2], torch.arange(7, 7 + FRAMES)
    reach = reach_of(mask)
    for slot, length in zip(slots, (PAGE - 3, 0, 5), strict=True):
        at = torch.arange(length)
        for cache in (together, alone):
            if length:
                stack.extend(vectors(length, slot), at, cache, slot, at)
    x = torch.stack([vectors(FRAMES, 10 + slot) for slot in slots])
    fixed.extend(x, positions, together, slots, reach)
    for slot, own in zip(slots, x, strict=True):
        stack.extend(own, positions, alone, slot, reach)
    assert together.lengths == alone.lengths
    for slot, layer in [(slot, layer) for slot in slots for layer in range(CONFIG.layers)]:
        found, expected = (cache.keys_of(layer, slot) for cache in (together, alone))
        torch.testing.assert_close(found, expected, atol=CLOSE, rtol=0)


def test_slots_extended_at_once_need_room_in_the_pool() -> None:
    stack = make_stack()
    pool = PagePool(CONFIG, 2, dtype=torch.float32, device=CPU)
    fixed, cache = stack.fixed_extend(pool), pool.new_cache(3, COLUMNS)
    x, at = torch.zeros(3, FRAMES, CONFIG.width), torch.arange(FRAMES)
    with pytest.raises(OutOfPages):
        fixed.extend(x, at, cache, [0, 1, 2], at + 1)
    assert cache.lengths == [0, 0, 0]

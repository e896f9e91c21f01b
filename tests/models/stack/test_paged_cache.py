"""A paged cache holds what one with a slot's memory reserved holds, in the pages that it needs."""

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

from models.stack.cache import KVCache
from models.stack.paged_cache import PAGE, OutOfPages, PagedCache, PagePool
from models.stack.transformer import Transformer
from tests.models.stack.stacks import CONFIG, make_stack, vectors

CPU = torch.device("cpu")
ROOM = 5 * PAGE


@pytest.fixture(autouse=True)
def without_gradients() -> Iterator[None]:
    with torch.inference_mode():
        yield


@pytest.fixture(scope="module")
def stack() -> Transformer:
    return make_stack()


def pool_of(pages: int) -> PagePool:
    return PagePool(CONFIG, pages, dtype=torch.float32, device=CPU)


def extend(stack: Transformer, cache: PagedCache | KVCache, slot: int, count: int) -> Tensor:
    start = cache.lengths[slot]
    at = torch.arange(start, start + count)
    return stack.extend(vectors(count, seed=start), at, cache, slot, at)


def test_slots_that_grow_by_turns_hold_what_reserved_ones_hold(stack: Transformer) -> None:
    pool = pool_of(12)
    paged, reserved = pool.new_cache(2, ROOM), KVCache(CONFIG, 2, ROOM)
    for slot, count in [(0, 3), (1, PAGE), (0, PAGE), (1, 1), (0, 2 * PAGE - 3), (1, 15)]:
        found, expected = (extend(stack, cache, slot, count) for cache in (paged, reserved))
        assert torch.allclose(found, expected, atol=1e-5)
        assert torch.equal(paged.keys_of(0, slot), reserved.keys_of(0, slot))
    assert paged.lengths == reserved.lengths
    assert pool.pages - pool.free == 3 + 2


def test_what_a_slot_was_loaded_with_is_stored_once(stack: Transformer) -> None:
    pool = pool_of(10)
    source = pool.new_cache(1, ROOM)
    extend(stack, source, 0, 2 * PAGE + 5)
    caches = [pool.new_cache(1, ROOM) for _ in range(3)]
    for cache in caches:
        cache.load(0, source)
    assert pool.pages - pool.free == 3 + 3  # two pages of all, a third of each

    alone = KVCache(CONFIG, 1, ROOM)
    extend(stack, alone, 0, 2 * PAGE + 5)
    wanted = extend(stack, alone, 0, 20)
    assert all(torch.allclose(extend(stack, one, 0, 20), wanted, atol=1e-5) for one in caches)
    assert torch.equal(source.keys_of(-1, 0), alone.keys_of(-1, 0)[:, : 2 * PAGE + 5])


def test_what_is_rewound_into_common_pages_is_copied_before_it_is_written(
    stack: Transformer,
) -> None:
    pool = pool_of(10)
    source, other = pool.new_cache(1, ROOM), pool.new_cache(1, ROOM)
    extend(stack, source, 0, 2 * PAGE)
    before = source.keys_of(0, 0).clone()
    other.load(0, source)
    other.rewind(0, PAGE + 7)
    start = other.lengths[0]
    stack.extend(vectors(9, seed=99), torch.arange(start, start + 9), other, 0)

    assert torch.equal(source.keys_of(0, 0), before)
    assert torch.equal(other.keys_of(0, 0)[:, :start], before[:, :start])


def test_pages_come_back_from_slots_that_are_freed_and_caches_that_are_gone(
    stack: Transformer,
) -> None:
    pool = pool_of(6)
    source, other = pool.new_cache(1, ROOM), pool.new_cache(2, ROOM)
    extend(stack, source, 0, PAGE + 1)
    other.load(0, source)
    extend(stack, other, 1, PAGE)
    assert pool.free == 6 - 2 - 1 - 1
    other.rewind(1, 0)
    assert pool.free == 3
    del source  # whose first page the other still has
    assert pool.free == 4
    del other
    assert pool.free == 6
    assert pool.used_bytes == 0


def test_a_pool_without_a_page_refuses_and_loses_none(stack: Transformer) -> None:
    pool = pool_of(2)
    cache = pool.new_cache(2, ROOM)
    extend(stack, cache, 0, PAGE)
    with pytest.raises(OutOfPages, match="2 pages asked for, 1 of 2"):
        extend(stack, cache, 1, PAGE + 1)
    assert pool.free == 1
    extend(stack, cache, 1, PAGE)


def test_bytes_are_those_that_are_allocated() -> None:
    pool = pool_of(3)
    assert 3 * pool.page_bytes == sum(one.nbytes for one in (*pool.keys, *pool.values))

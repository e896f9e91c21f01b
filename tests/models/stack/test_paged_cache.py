"""Pages: a slot has those that it needs, shares what it was loaded with, and gives them back.

What is in them is said by `test_cached_passes`.
"""

import random
import threading
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from typing import Any

import pytest
import torch

from gpu.streams import Work
from models.stack import paged_cache
from models.stack.paged_cache import PAGE, PagedCache
from tests.models.stack.stacks import CPU, pool_of

pytestmark = pytest.mark.usefixtures("without_gradients")
ROOM = 5 * PAGE


def grow(cache: PagedCache, slot: int, count: int) -> None:
    cache.reserve(slot, cache.lengths[slot] + count)
    cache.advance(slot, count)


def test_a_slot_has_the_pages_that_it_needs_and_those_that_it_was_loaded_with_once() -> None:
    pool = pool_of(12)
    used, source, other = lambda: pool.pages - pool.free, *(pool.new_cache(2, ROOM) for _ in "12")
    for slot, count, pages in [(0, 3, 1), (1, PAGE, 2), (0, PAGE, 3), (1, 1, 4), (0, PAGE, 5)]:
        grow(source, slot, count)
        assert used() == pages
    other.load(0, source)
    assert used() == 5 + 1  # two pages of both, a third of each
    grow(other, 1, 1)
    other.rewind(1, 0)
    assert used() == 5 + 1
    other.rewind(0, PAGE + 7)  # what is written next is its own
    assert used() == 5 + 1
    assert {*other.pages(0)} & {*source.pages(0)} == {source.pages(0)[0]}
    del source
    assert used() == 2
    del other
    assert (used(), pool.used_bytes) == (0, 0)


def test_a_source_of_which_a_copy_is_due_cannot_go_back_and_loads_with_what_is_due_to_it() -> None:
    pool = pool_of(12)
    first, second, third = (pool.new_cache(1, ROOM) for _ in range(3))
    grow(first, 0, 3)
    for tensor in pool.keys:
        tensor.fill_(7)
    second.load(0, first)
    with pytest.raises(AssertionError, match="would be copied"):
        first.rewind(0, 1)
    third.load(0, second)
    first.rewind(0, 1)
    assert (third.keys_of(0, 0) == 7).all()


@pytest.mark.parametrize("rewound", [0, 1])
def test_who_goes_back_into_a_page_that_others_have_writes_to_one_of_its_own(rewound: int) -> None:
    cache = pool_of(12).new_cache(2, ROOM)
    grow(cache, 0, 2 * PAGE)
    cache.fork(0, 1)
    both = [*cache.pages(0)]
    assert [*cache.pages(1)] == both
    cache.rewind(rewound, PAGE + 7)
    assert [*cache.pages(1 - rewound)] == both
    assert {*cache.pages(rewound)} & {*both} == {both[0]}


def test_bytes_are_those_that_are_allocated() -> None:
    pool = pool_of(3)
    held = sum(one.nbytes for one in (*pool.keys, *pool.values))
    assert (3 + 1) * pool.page_bytes == held  # one is for padding


class Queue:
    """Work of a device that is done when a test says so."""

    def __init__(self, _: object = None) -> None:
        self.done, self.waited_for = False, list[Queue]()

    def mark(self) -> "Queue":
        return self

    def query(self) -> bool:
        return self.done

    def wait_for(self, mark: "Queue") -> None:
        self.waited_for.append(mark)


def test_caches_that_are_gone_leave_their_pages_to_their_own_work(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(paged_cache, "Work", Queue)
    pool = pool_of(2)
    one, other = pool.new_cache(1, ROOM), pool.new_cache(1, ROOM)
    one.reserve(0, PAGE + 1)
    work, waiting = one._work, other._work
    del one
    other.reserve(0, 1)
    assert isinstance(waiting, Queue)
    assert waiting.waited_for == [work]


def test_threads_that_share_a_pool_never_have_the_same_page() -> None:
    pool, begin = pool_of(24), threading.Barrier(3)
    owners: list[list[int]] = [[] for _ in range(24)]

    def use(seed: int) -> None:
        chance, own = random.Random(seed), Work(CPU)
        begin.wait()
        for _ in range(300):
            taken = [pool.take(chance.randint(1, 4), own) for _ in range(2)]
            for page in chain(*taken):
                owners[page].append(seed)
            assert [owners[page] for page in chain(*taken)] == [[seed]] * sum(map(len, taken))
            for pages in taken:
                for page in pages:
                    owners[page].clear()
                pool.give(pages, own)

    with ThreadPoolExecutor(3) as threads:
        list(threads.map(use, range(1, 4)))
    assert pool.free == 24


@pytest.mark.parametrize("seed", range(20))
def test_a_page_is_free_when_all_streams_that_had_it_are_done_or_else_waited_for(seed: int) -> None:
    """Three streams give and take at random; a queue is done with its pages when it says so."""
    chance, pool = random.Random(seed), pool_of(6)
    held: list[tuple[Any, list[int]]] = []
    reads: dict[int, set[Queue]] = {page: set() for page in range(6)}  # queued and not done
    for _ in range(200):
        work: Any = Queue()  # what a stream has queued until then
        if held and chance.random() < 0.6:
            owner, pages = held.pop(chance.randrange(len(held)))
            pool.give(pages, owner)
        elif held and chance.random() < 0.4:
            pages = chance.choice(held)[1]
            pool.share(pages)
            held.append((work, pages))
            for page in pages:
                reads[page].add(work)
        elif pool.free:
            free = {*range(6)} - {page for _, pages in held for page in pages}
            idle = {page for page in free if all(one.done for one in reads[page])}
            pages = pool.take(chance.randint(1, pool.free), work)
            assert len(idle & {*pages}) == min(len(idle), len(pages))  # before any is waited for
            users = {one for page in pages for one in reads[page]}
            assert {one for one in users if not one.done} <= {*work.waited_for} <= users
            for page in pages:
                reads[page] = {work}
            held.append((work, pages))
        if chance.random() < 0.3:
            for one in chance.choice([*reads.values()]):
                one.done = True


def test_positions_that_are_lifted_are_laid_into_pages_of_the_slots_own() -> None:
    pool = pool_of(12)
    cache, other = pool.new_cache(2, ROOM), pool.new_cache(1, ROOM)
    grow(cache, 0, 2 * PAGE + 5)
    for number, tensor in enumerate((*pool.keys, *pool.values)):
        tensor.copy_(torch.arange(tensor.numel()).view(tensor.shape) + number)
    expected = [cache.keys_of(layer, 0)[:, 3 : PAGE + 9].clone() for layer in range(3)]
    lifted = cache.lift(0, 3, PAGE + 9)
    grow(other, 0, PAGE + 2)
    cache.rewind(0, 0)
    cache.load(0, other)
    shared = cache.keys_of(0, 0)
    cache.lay(0, lifted)
    assert cache.lengths[0] == 2 * PAGE + 8
    for layer in range(3):
        assert torch.equal(cache.keys_of(layer, 0)[:, PAGE + 2 :], expected[layer])
    assert torch.equal(cache.keys_of(0, 0)[:, : PAGE + 2], shared)
    assert torch.equal(other.keys_of(0, 0), shared)  # whose last page is not written
    cache.lay(1, cache.lift(0, 4, 4))
    assert cache.lengths[1] == 0

"""A paged cache holds what one with a slot's memory reserved holds, in the pages that it needs."""

import random
import threading

import pytest
import torch
from torch import Tensor

from models.stack import paged_cache
from models.stack.cache import KVCache
from models.stack.paged_cache import PAGE, OutOfPages, PagedCache, PagePool
from models.stack.transformer import Transformer
from tests.models.stack.stacks import CONFIG, make_stack, vectors

pytestmark = pytest.mark.usefixtures("without_gradients")

CPU = torch.device("cpu")
ROOM = 5 * PAGE


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
        keys, kept = (cache.keys_of(0, slot) for cache in (paged, reserved))
        assert torch.allclose(keys, kept, atol=1e-5)
    assert paged.lengths == reserved.lengths
    assert pool.pages - pool.free == 3 + 2


def test_what_a_slot_was_loaded_with_is_stored_once(stack: Transformer) -> None:
    pool = pool_of(10)
    source = pool.new_cache(1, ROOM)
    extend(stack, source, 0, 2 * PAGE + 5)
    before = source.keys_of(-1, 0)
    caches = [pool.new_cache(1, ROOM) for _ in range(3)]
    for cache in caches:
        cache.load(0, source)
    assert pool.pages - pool.free == 3 + 3  # two pages of all, a third of each

    alone = KVCache(CONFIG, 1, ROOM)
    extend(stack, alone, 0, 2 * PAGE + 5)
    wanted = extend(stack, alone, 0, 20)
    assert all(torch.allclose(extend(stack, one, 0, 20), wanted, atol=1e-5) for one in caches)
    assert torch.equal(source.keys_of(-1, 0), before)


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


def test_a_page_is_free_when_the_device_is_done_with_what_its_last_user_queued() -> None:
    pool, one, other = pool_of(4), Queue(), Queue()
    given = pool.take(2, one)  # type: ignore[arg-type]
    pool.give(given, one)  # type: ignore[arg-type]
    assert pool.free == 4
    taken = pool.take(2, other)  # type: ignore[arg-type]
    assert {*taken}.isdisjoint(given)
    assert not other.waited_for

    # Where no other page is left the new work waits for the old, on the device.
    taken += pool.take(1, other)  # type: ignore[arg-type]
    assert taken[-1] in given
    assert other.waited_for == [one]
    last = Queue()
    taken += pool.take(1, last)  # type: ignore[arg-type]
    assert last.waited_for == [one]
    assert sorted(taken) == [0, 1, 2, 3]


def test_a_page_that_is_done_with_is_taken_without_a_wait() -> None:
    pool, one, other = pool_of(2), Queue(), Queue()
    pool.give(pool.take(2, one), one)  # type: ignore[arg-type]
    one.done = True
    pool.take(2, other)  # type: ignore[arg-type]
    assert not other.waited_for


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
    pool, shared = pool_of(24), list[set[int]]()
    begin = threading.Barrier(3)

    @torch.inference_mode()
    def use(seed: int) -> None:
        chance = random.Random(seed)
        begin.wait()
        for _ in range(100):
            cache = pool.new_cache(2, ROOM)
            for slot in range(2):
                cache.reserve(slot, chance.randint(1, 2 * PAGE))
                mark = torch.full((PAGE, *pool.keys[0].shape[1:]), float(seed))
                for page in cache.pages(slot):
                    pool.keys[0][page * PAGE : (page + 1) * PAGE] = mark
            for slot in range(2):
                for page in cache.pages(slot):
                    if not (pool.keys[0][page * PAGE : (page + 1) * PAGE] == seed).all():
                        shared.append({page})
            cache.rewind(0, 0)

    threads = [threading.Thread(target=use, args=(seed,)) for seed in range(1, 4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not shared
    assert pool.free == 24


def test_a_page_of_two_streams_is_free_when_both_are_done_with_it() -> None:
    pool, one, other, last = pool_of(1), Queue(), Queue(), Queue()
    given = pool.take(1, one)  # type: ignore[arg-type]
    pool.share(given)
    pool.give(given, one)  # type: ignore[arg-type]
    pool.give(given, other)  # type: ignore[arg-type]
    other.done = True
    assert pool.take(1, last) == given  # type: ignore[arg-type]
    assert one in last.waited_for


@pytest.mark.parametrize("seed", range(20))
def test_no_page_is_taken_while_a_stream_that_had_it_still_reads_it(seed: int) -> None:
    """Three streams give and take at random; a queue is done with its pages when it says so."""
    chance, pool = random.Random(seed), pool_of(6)
    held: list[tuple[Queue, list[int]]] = []
    reads: dict[int, set[Queue]] = {page: set() for page in range(6)}  # queued and not done
    for _ in range(200):
        work = Queue()  # what a stream has queued until then
        if held and chance.random() < 0.6:
            owner, pages = held.pop(chance.randrange(len(held)))
            pool.give(pages, owner)  # type: ignore[arg-type]
        elif held and chance.random() < 0.4:
            pages = chance.choice(held)[1]
            pool.share(pages)
            held.append((work, pages))
            for page in pages:
                reads[page].add(work)
        elif pool.free:
            pages = pool.take(chance.randint(1, pool.free), work)  # type: ignore[arg-type]
            for page in pages:
                assert {one for one in reads[page] if not one.done} <= {*work.waited_for}
                reads[page] = {work}
            held.append((work, pages))
        if chance.random() < 0.3:
            for one in chance.choice([*reads.values()]):
                one.done = True

"""KV caches by pages: many sequences in one memory, each with what it uses.

A slot that reserves room for the longest sequence wastes most of it where sequences are short, and
what sequences begin with alike, as with a voice's prompt, is stored again for each. Here a slot has
pages of `PAGE` positions, taken as it grows, and the whole pages of a common beginning are those of
the sequence that it was copied from.

The two threads that draw level 0 and make the sound share one pool. No sequence is of both, but a
page that one gives back may be the other's next; so it is free only when the device is done with
what the one had queued until then.
"""

import math
import threading
import weakref
from collections import deque
from collections.abc import Sequence
from typing import ClassVar, NamedTuple, Self

import torch
from torch import Tensor

from models.config import ModelConfig
from models.cuda.streams import Mark, Work
from models.stack.cache import FloatCache

PAGE = 64
"""Positions of a page."""


class Stored(NamedTuple):
    """Keys and values of a layer, for passes in fixed shapes.

    Attributes:
        keys: ``[1, kv_heads, positions, head_dim]``, all pages.
        values: The same.
        rows: ``[n, head_dim]``: the memory of both.
    """

    keys: Tensor
    values: Tensor
    rows: Tensor


class OutOfPages(RuntimeError):
    """A pool has no page left."""


class PagePool:
    """Memory for the keys and values of many sequences. Any thread; each sequence is of one.

    Attributes:
        keys: ``[(pages + 1) * PAGE, kv_heads, head_dim]`` a layer.
        values: The same.
        stored: Both, for passes in fixed shapes.
        pages: How many pages there are.
        padding: The number of one more, which no sequence has: recordings write there what is not
            kept, and nobody reads it.
    """

    def __init__(
        self, config: ModelConfig, pages: int, *, dtype: torch.dtype, device: torch.device
    ) -> None:
        """Allocate all pages."""
        shape = (2, (pages + 1) * PAGE, config.kv_heads, config.head_dim)
        both = [torch.zeros(shape, dtype=dtype, device=device) for _ in range(config.layers)]
        self.keys, self.values = [one[0] for one in both], [one[1] for one in both]
        self.stored = [
            Stored(
                one[0][None].transpose(1, 2), one[1][None].transpose(1, 2), one.view(-1, shape[-1])
            )
            for one in both
        ]
        self.pages = self.padding = pages
        self._lock = threading.Lock()
        self._free = list(range(pages))
        self._users = [0] * pages
        # Pages without users, until the device is done with what their last one had queued.
        self._leaving: list[tuple[Mark, list[int]]] = []
        # Given back, and not counted yet: no lock is taken, as the garbage collector gives, too,
        # which may interrupt whoever has it.
        self._given: deque[tuple[Work, list[int]]] = deque()

    @property
    def free(self) -> int:
        """How many pages no sequence has."""
        with self._lock:
            self._count_given()
            return self._unused

    @property
    def page_bytes(self) -> int:
        """Bytes of a page in all layers."""
        _, kv_heads, head_dim = self.keys[0].shape
        return page_bytes_of(len(self.keys), kv_heads, head_dim, self.keys[0].element_size())

    @property
    def used_bytes(self) -> int:
        """Bytes of the pages that sequences have."""
        return (self.pages - self.free) * self.page_bytes

    def new_cache(self, slots: int, max_length: int) -> "PagedCache":
        """Return an empty cache, which gives its pages back when it is garbage collected.

        Args:
            slots: Number of sequences.
            max_length: The most positions of each.
        """
        return PagedCache(self, slots, max_length)

    def take(self, count: int, work: Work) -> list[int]:
        """Return pages for one user; queues nothing on the device.

        Args:
            count: How many.
            work: Whatever is done with them.

        Raises:
            OutOfPages: There are not so many.
        """
        with self._lock:
            self._count_given()
            if count > self._unused:
                free = f"{self._unused} of {self.pages} are free"
                raise OutOfPages(f"{count} pages asked for, {free}")
            taken = [self._free.pop() for _ in range(min(count, len(self._free)))]
            while count > len(taken):
                mark, pages = self._leaving[0]
                work.wait_for(mark)
                lacking = count - len(taken)
                taken += pages[:lacking]
                del pages[:lacking]
                if not pages:
                    del self._leaving[0]
            for page in taken:
                self._users[page] = 1
            return taken

    def share(self, pages: Sequence[int]) -> None:
        """Note one more user, in the same thread, of some pages that have one."""
        with self._lock:
            for page in pages:
                self._users[page] += 1

    def give(self, pages: Sequence[int], work: Work) -> None:
        """Note one user less of some pages; those without any are free, once ``work`` is done."""
        self._given.append((work, list(pages)))

    @property
    def _unused(self) -> int:
        return len(self._free) + sum(len(pages) for _, pages in self._leaving)

    def _count_given(self) -> None:
        """Count what was given back, and what the device is done with; the lock is held."""
        while self._given:
            work, pages = self._given.popleft()
            for page in pages:
                self._users[page] -= 1
            if unused := [page for page in pages if not self._users[page]]:
                self._leaving.append((work.mark(), unused))
        waiting, self._leaving = self._leaving, []
        for mark, pages in waiting:
            if mark.passed:
                self._free += pages
            else:
                self._leaving.append((mark, pages))

    def places(self, pages: Sequence[int]) -> Tensor:
        """Return ``[len(pages) * PAGE]`` int64: the rows of `keys` and `values` of some pages."""
        device = self.keys[0].device
        numbers = torch.tensor(pages, dtype=torch.int64, pin_memory=device.type == "cuda")
        first = numbers.to(device, non_blocking=True)[:, None] * PAGE
        return (first + torch.arange(PAGE, device=device)).flatten()


class PagedCache(FloatCache):
    """A cache whose slots are pages of a pool; for `Transformer.extend`, and for recordings.

    One thread only, that which makes it.
    """

    finite: ClassVar = True

    def __init__(self, pool: PagePool, slots: int, max_length: int) -> None:
        super().__init__(slots, max_length)
        self._pool = pool
        self._pages: list[list[int]] = [[] for _ in range(slots)]
        self._shared = [0] * slots  # leading pages that others have, too
        # Where their positions lie; None where nobody has asked since the pages changed.
        self._places: list[Tensor | None] = [None] * slots
        self._work = Work(pool.keys[0].device)
        weakref.finalize(self, _give_all, pool, self._pages, self._work)

    @property
    def bytes(self) -> int:
        """Memory of its pages, shared ones included."""
        return sum(map(len, self._pages)) * self._pool.page_bytes

    def write(self, layer: int, slot: int, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Write new positions after a slot's length; see `FloatCache.write`.

        Raises:
            ValueError: The slot is full.
            OutOfPages: The pool is.
        """
        self.check_room(slot, keys.shape[1])
        start = self.lengths[slot]
        end = start + keys.shape[1]
        self.reserve(slot, end)
        places, pool = self._places_of(slot), self._pool
        pool.keys[layer].index_copy_(0, places[start:end], keys.transpose(0, 1))
        pool.values[layer].index_copy_(0, places[start:end], values.transpose(0, 1))
        return self._read(pool.keys[layer], slot, end), self._read(pool.values[layer], slot, end)

    def part(self, layer: int, slot: int, begin: int, end: int) -> tuple[Tensor, Tensor]:
        """Return copies of some positions; see `FloatCache.part`."""
        places, pool = self._places_of(slot)[begin:end], self._pool
        keys, values = (
            rows[layer].index_select(0, places).transpose(0, 1) for rows in (pool.keys, pool.values)
        )
        return keys, values

    def keys_of(self, layer: int, slot: int) -> Tensor:
        """Return a copy ``[kv_heads, length, head_dim]``."""
        return self._read(self._pool.keys[layer], slot, self.lengths[slot])

    def rewind(self, slot: int, length: int) -> None:
        """Truncate a slot, and give back the pages that it does not need."""
        super().rewind(slot, length)
        kept = math.ceil(length / PAGE)
        self._pool.give(self._pages[slot][kept:], self._work)
        del self._pages[slot][kept:]
        self._places[slot] = None
        if kept <= self._shared[slot] and length % PAGE:  # what is written next is its own
            self._own_last(slot)
        self._shared[slot] = min(self._shared[slot], length // PAGE)

    def _copy(self, slot: int, source: Self, source_slot: int, begin: int, end: int) -> None:
        whole = 0
        if source._pool is self._pool and not self._pages[slot]:
            whole = end // PAGE
            shared = source._pages[source_slot][:whole]
            self._pool.share(shared)
            self._pages[slot] += shared
            self._shared[slot] = whole
            self._places[slot] = None
        self.reserve(slot, end)
        begin = max(begin, whole * PAGE)
        target = self._places_of(slot)[begin:end]
        origin = source._places_of(source_slot)[begin:end]
        for own, others in (
            (self._pool.keys, source._pool.keys),
            (self._pool.values, source._pool.values),
        ):
            for rows, other in zip(own, others, strict=True):
                rows.index_copy_(0, target, other.index_select(0, origin))

    def pages(self, slot: int) -> Sequence[int]:
        """Return the pages of a slot, in order."""
        return self._pages[slot]

    def reserve(self, slot: int, end: int) -> None:
        """Take the pages that a slot of ``end`` positions lacks; queues nothing on the device.

        Raises:
            OutOfPages: There are not so many.
        """
        lacking = math.ceil(end / PAGE) - len(self._pages[slot])
        if lacking > 0:
            self._pages[slot] += self._pool.take(lacking, self._work)
            self._places[slot] = None

    def _own_last(self, slot: int) -> None:
        """Replace the last page of a slot by a copy of its own."""
        (page,) = self._pool.take(1, self._work)
        places = self._pool.places([page])
        old = self._pool.places(self._pages[slot][-1:])
        for rows in (*self._pool.keys, *self._pool.values):
            rows.index_copy_(0, places, rows.index_select(0, old))
        self._pool.give([self._pages[slot].pop()], self._work)
        self._pages[slot].append(page)
        self._places[slot] = None

    def _places_of(self, slot: int) -> Tensor:
        """Return ``[pages * PAGE]`` int64: where the positions of a slot lie."""
        found = self._places[slot]
        if found is None:
            found = self._places[slot] = self._pool.places(self._pages[slot])
        return found

    def _read(self, rows: Tensor, slot: int, end: int) -> Tensor:
        return rows.index_select(0, self._places_of(slot)[:end]).transpose(0, 1)


def page_bytes_of(layers: int, kv_heads: int, head_dim: int, element_bytes: int) -> int:
    """Return the bytes of a page in all layers, keys and values."""
    return 2 * layers * PAGE * kv_heads * head_dim * element_bytes


def _give_all(pool: PagePool, pages: Sequence[Sequence[int]], work: Work) -> None:
    for slot in pages:
        pool.give(slot, work)

"""KV caches by pages: many sequences in one memory, each with what it uses.

A slot has pages of `PAGE` positions, taken as it grows; the whole pages of a common beginning, as
of a voice's prompt, are those of the sequence that it was copied from.

The two threads that sample level 0 and make the sound share one pool. No sequence is of both, but a
page that one gives back may be the other's next; so it is free only when the device is done with
what the one had queued until then.
"""

import math
import sys
import threading
import weakref
from collections import deque
from collections.abc import Sequence
from typing import Self

import numpy as np
import torch
from torch import Tensor

from gpu.streams import Work
from gpu.transfers import to_device
from models.config import ModelConfig
from models.cuda.kernels.reference import SCALE_BYTES, gather
from models.cuda.kernels.sharing import PAGE as PAGE
from models.stack.slot_cache import Held, SlotCache


class OutOfPages(RuntimeError):
    """A pool has no page left."""


class PagePool:
    """Memory for the keys and values of many sequences. Any thread; each sequence is of one.

    Args:
        dtype: Of keys and values: that of the weights, or int8.

    Attributes:
        keys: ``[(pages + 1) * PAGE, kv_heads, head_dim]`` a layer, rotated and finite; in int8 with
            scales, as `models.cuda.kernels.reference.store` leaves them.
        values: The same.
        by_page: ``[2 * layers, pages + 1, n]``, the same memory, keys of all layers first.
        by_position: ``[2 * layers, (pages + 1) * PAGE, n]``, likewise.
        pages: How many pages there are, each of `page_bytes` in all layers.
        padding: The number of one more, which no sequence has: graphs write there what is not
            kept, and nobody reads it.
    """

    def __init__(
        self, config: ModelConfig, pages: int, *, dtype: torch.dtype, device: torch.device
    ) -> None:
        shape = (2, config.layers, (pages + 1) * PAGE, config.kv_heads, _width(config, dtype))
        held = torch.zeros(shape, dtype=dtype, device=device)
        self.keys, self.values = ([*part.unbind()] for part in held)
        self.by_page = held.view(2 * config.layers, pages + 1, -1)
        self.by_position = held.view(2 * config.layers, (pages + 1) * PAGE, -1)
        self.pages = self.padding = pages
        self.page_bytes = page_bytes_of(config, dtype)
        self._lock = threading.Lock()
        self._free = list(range(pages))
        self._users = [0] * pages
        # Of pages that several have, or that nobody has any more: the ends of what those that gave
        # them back had queued, until the device is done with it.
        self._marks: dict[int, list[torch.cuda.Event | None]] = {}
        self._leaving: list[int] = []
        # Given back, and not counted yet: no lock is taken, as the garbage collector gives, too,
        # which may interrupt whoever has it.
        self._freed: deque[tuple[Work, list[int]]] = deque()

    @property
    def free(self) -> int:
        """How many pages no sequence has."""
        with self._lock:
            self._reclaim()
            return self._unused

    @property
    def used_bytes(self) -> int:
        """Bytes of the pages that sequences have."""
        return (self.pages - self.free) * self.page_bytes

    def new_cache(self, slots: int, max_length: int) -> "PagedCache":
        """Return an empty cache, which gives its pages back when it is garbage collected."""
        return PagedCache(self, slots, max_length)

    def take(self, count: int, work: Work) -> list[int]:
        """Return pages for one user, or raise `OutOfPages`; queues nothing on the device.

        Marks of earlier users are waited for in ``work``, whatever is done with the pages.
        """
        with self._lock:
            self._reclaim()
            if count > self._unused:
                free = f"{self._unused} of {self.pages} are free"
                raise OutOfPages(f"{count} pages asked for, {free}")
            taken = [self._free.pop() for _ in range(min(count, len(self._free)))]
            while count > len(taken):
                page = self._leaving.pop(0)
                for mark in self._marks.pop(page):
                    work.wait_for(mark)
                taken.append(page)
            for page in taken:
                self._users[page] = 1
            return taken

    def share(self, pages: Sequence[int]) -> None:
        """Note one more user, in the same thread, of some pages that have one."""
        with self._lock:
            for page in pages:
                self._users[page] += 1

    def is_shared(self, page: int) -> bool:
        """Return whether a page has several users."""
        with self._lock:
            self._reclaim()
            return self._users[page] > 1

    def give(self, pages: Sequence[int], work: Work) -> None:
        """Note one user less of some pages; those without any are free, once ``work`` is done."""
        self._freed.append((work, list(pages)))

    @property
    def _unused(self) -> int:
        return len(self._free) + len(self._leaving)

    def _reclaim(self) -> None:
        """Count what was given back, and what the device is done with; the lock is held."""
        while self._freed:
            work, pages = self._freed.popleft()
            mark = work.mark() if pages else None
            for page in pages:
                self._users[page] -= 1
                self._marks[page] = [*self._pending(page), mark]
                if not self._users[page]:
                    self._leaving.append(page)
        waiting = self._leaving
        self._leaving = []
        for page in waiting:
            if self._pending(page):
                self._leaving.append(page)
            else:
                self._free.append(page)
                self._marks.pop(page, None)

    def _pending(self, page: int) -> list[torch.cuda.Event | None]:
        """Return the marks of a page that the device has not passed."""
        marks = (mark for mark in self._marks.get(page, ()) if mark is not None)
        return [mark for mark in marks if not mark.query()]  # type: ignore[no-untyped-call]

    def copy(self, source: int, target: int) -> None:
        """Copy a page."""
        self.by_page[:, target] = self.by_page[:, source]


class PagedCache(SlotCache):
    """A cache whose slots are pages of a `pool`. One thread only, that which makes it."""

    def __init__(self, pool: PagePool, slots: int, max_length: int) -> None:
        super().__init__(slots, max_length)
        self.pool = pool
        self._pages: list[list[int]] = [[] for _ in range(slots)]
        self._work = Work(pool.keys[0].device)
        # Copies of pages that are due, each with the cache that it is from, which counts them.
        self._copies: list[tuple[PagedCache, int, int]] = []
        self._lent = 0
        weakref.finalize(self, _give_all, pool, self._pages, self._work)

    @property
    def bytes(self) -> int:
        """Memory of its pages, shared ones included."""
        return sum(map(len, self._pages)) * self.pool.page_bytes

    def keys_of(self, layer: int, slot: int) -> Tensor:
        """Return a copy ``[kv_heads, length, head_dim]``, in float32 of what is held in 8 bits."""
        rows = self.pool.keys[layer]
        dtype = torch.float32 if rows.dtype == torch.int8 else rows.dtype
        pages = to_device(np.array([self.pages(slot)], np.int64), rows.device)
        found = gather(rows, pages, dtype)
        return found[0, :, : self.lengths[slot]]

    def rewind(self, slot: int, length: int) -> None:
        """Truncate a slot, and give back the pages that it does not need."""
        super().rewind(slot, length)
        if self._pages[slot]:  # of or to which a copy may be due
            self.pages(slot)
            assert not self._lent, "what grows anew would be copied"
        kept = math.ceil(length / PAGE)
        self.pool.give(self._pages[slot][kept:], self._work)
        del self._pages[slot][kept:]
        if length % PAGE and self.pool.is_shared(self._pages[slot][-1]):
            self._own_last(slot)  # what is written next is its own

    def lift(self, slot: int, begin: int, end: int) -> Held:
        """Return a copy of some positions of a slot."""
        places = self._places(slot, begin, end)
        return Held(end - begin, [self.pool.by_position.index_select(1, places)])

    def _lay(self, slot: int, begin: int, held: Held) -> None:
        end = begin + held.positions
        self.reserve(slot, end)
        places = self._places(slot, begin, end)
        self.pool.by_position.index_copy_(1, places, held.arrays[0])

    def _places(self, slot: int, begin: int, end: int) -> Tensor:
        """Return where some positions of a slot are in the pool, on its device."""
        at = np.arange(begin, end)
        pages = np.array(self.pages(slot), np.int64)
        return to_device(pages[at // PAGE] * PAGE + at % PAGE, self.pool.keys[0].device)

    def _copy(self, slot: int, source: Self, source_slot: int, begin: int, end: int) -> None:
        """Have the whole pages in common, and a copy of the last."""
        del begin
        self.rewind(slot, 0)
        pages = source.pages(source_slot)
        whole = end // PAGE
        self.pool.share(pages[:whole])
        self._pages[slot] += pages[:whole]
        if end % PAGE:
            self.reserve(slot, end)
            self._copies.append((source, pages[whole], self._pages[slot][whole]))
            source._lent += 1

    def pages(self, slot: int) -> Sequence[int]:
        """Return the pages of a slot, in order, with all that is to be in them."""
        for source, target in self.take_copies():
            self.pool.copy(source, target)
        return self._pages[slot]

    def take_copies(self, most: int = sys.maxsize) -> list[tuple[int, int]]:
        """Return copies of pages to others that are due; the caller queues them before all else."""
        taken = self._copies[:most]
        self._copies = self._copies[most:]
        for source, _, _ in taken:
            source._lent -= 1
        return [(page, target) for _, page, target in taken]

    def reserve(self, slot: int, end: int) -> None:
        """Take the pages that a slot of ``end`` positions lacks; queues nothing on the device."""
        lacking = math.ceil(end / PAGE) - len(self._pages[slot])
        if lacking > 0:
            self._pages[slot] += self.pool.take(lacking, self._work)

    def _own_last(self, slot: int) -> None:
        """Replace the last page of a slot by a copy of its own."""
        (page,) = self.pool.take(1, self._work)
        old = self.pages(slot)[-1]
        self._pages[slot].pop()
        self.pool.copy(old, page)
        self.pool.give([old], self._work)
        self._pages[slot].append(page)


def page_bytes_of(config: ModelConfig, dtype: torch.dtype) -> int:
    """Return the bytes of a page in all layers, keys and values."""
    return 2 * config.layers * PAGE * config.kv_heads * _width(config, dtype) * dtype.itemsize


def _width(config: ModelConfig, dtype: torch.dtype) -> int:
    """Return the elements of a head of a position, its scale included."""
    return config.head_dim + (SCALE_BYTES if dtype == torch.int8 else 0)


def _give_all(pool: PagePool, pages: Sequence[Sequence[int]], work: Work) -> None:
    for slot in pages:
        pool.give(slot, work)

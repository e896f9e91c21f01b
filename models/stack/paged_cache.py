"""KV caches by pages: many sequences in one memory, each with what it uses.

A slot that reserves room for the longest sequence wastes most of it where sequences are short, and
what sequences begin with alike, as with a voice's prompt, is stored again for each. Here a slot has
pages of `PAGE` positions, taken as it grows, and the whole pages of a common beginning are those of
the sequence that it was copied from.
"""

import math
import weakref
from collections.abc import Sequence
from typing import Self

import torch
from torch import Tensor

from models.config import ModelConfig
from models.stack.cache import FloatCache
from models.stack.fixed_layers import Stored

PAGE = 64
"""Positions of a page."""


class OutOfPages(RuntimeError):
    """A pool has no page left."""


class PagePool:
    """Memory for the keys and values of many sequences. One thread, and one CUDA stream, only.

    Attributes:
        keys: ``[pages * PAGE, kv_heads, head_dim]`` a layer.
        values: The same.
        stored: Both, for passes in fixed shapes.
        pages: How many pages there are.
        read_whole: Whether positions past a sequence's end are read; see `FloatCache`.
    """

    def __init__(
        self, config: ModelConfig, pages: int, *, dtype: torch.dtype, device: torch.device
    ) -> None:
        """Allocate all pages."""
        shape = (2, pages * PAGE, config.kv_heads, config.head_dim)
        both = [torch.zeros(shape, dtype=dtype, device=device) for _ in range(config.layers)]
        self.keys, self.values = [one[0] for one in both], [one[1] for one in both]
        self.stored = [
            Stored(
                one[0][None].transpose(1, 2), one[1][None].transpose(1, 2), one.view(-1, shape[-1])
            )
            for one in both
        ]
        self.pages = pages
        self.read_whole = False
        self._free = list(range(pages))
        self._users = [0] * pages

    @property
    def free(self) -> int:
        """How many pages no sequence has."""
        return len(self._free)

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

    def take(self, count: int) -> list[int]:
        """Return pages for one user.

        Raises:
            OutOfPages: There are not so many.
        """
        if count > self.free:
            raise OutOfPages(f"{count} pages asked for, {self.free} of {self.pages} are free")
        taken = [self._free.pop() for _ in range(count)]
        self.share(taken)
        return taken

    def share(self, pages: Sequence[int]) -> None:
        """Note one more user of some pages."""
        for page in pages:
            self._users[page] += 1

    def give(self, pages: Sequence[int]) -> None:
        """Note one user less of some pages; those without any are free."""
        for page in pages:
            self._users[page] -= 1
            if not self._users[page]:
                self._free.append(page)

    def places(self, pages: Sequence[int]) -> Tensor:
        """Return ``[len(pages) * PAGE]`` int64: the rows of `keys` and `values` of some pages."""
        device = self.keys[0].device
        numbers = torch.tensor(pages, dtype=torch.int64, pin_memory=device.type == "cuda")
        first = numbers.to(device, non_blocking=True)[:, None] * PAGE
        return (first + torch.arange(PAGE, device=device)).flatten()


class PagedCache(FloatCache):
    """A cache whose slots are pages of a pool; for `Transformer.extend`."""

    def __init__(self, pool: PagePool, slots: int, max_length: int) -> None:
        super().__init__(slots, max_length)
        self._pool = pool
        self._pages: list[list[int]] = [[] for _ in range(slots)]
        self._shared = [0] * slots  # leading pages that others have, too
        # Where their positions lie; None where nobody has asked since the pages changed.
        self._places: list[Tensor | None] = [None] * slots
        self.read_whole = pool.read_whole
        weakref.finalize(self, _give_all, pool, self._pages)

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

    def keys_of(self, layer: int, slot: int) -> Tensor:
        """Return a copy ``[kv_heads, length, head_dim]``."""
        return self._read(self._pool.keys[layer], slot, self.lengths[slot])

    def rewind(self, slot: int, length: int) -> None:
        """Truncate a slot, and give back the pages that it does not need."""
        super().rewind(slot, length)
        kept = math.ceil(length / PAGE)
        self._pool.give(self._pages[slot][kept:])
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
            self._pages[slot] += self._pool.take(lacking)
            self._places[slot] = None

    def _own_last(self, slot: int) -> None:
        """Replace the last page of a slot by a copy of its own."""
        (page,) = self._pool.take(1)
        places = self._pool.places([page])
        old = self._pool.places(self._pages[slot][-1:])
        for rows in (*self._pool.keys, *self._pool.values):
            rows.index_copy_(0, places, rows.index_select(0, old))
        self._pool.give([self._pages[slot].pop()])
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


def _give_all(pool: PagePool, pages: Sequence[Sequence[int]]) -> None:
    for slot in pages:
        pool.give(slot)

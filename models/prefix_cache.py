"""Prefix caching: keys and values of the shared part of prefixes, computed once and copied.

A voice's prompt is most of the prefix and the same for every text; so is the unconditional prefix
of guidance. See `models.prefix.Prefix.shared` for why the copy is exact.
"""

from collections import Counter, OrderedDict
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

import torch

from models.prefix import Prefix
from models.stack.slot_cache import SlotCache
from models.valle import Valle

DEFAULT_MAX_BYTES = 256 << 20


class VoiceKey(NamedTuple):
    """Cache key of the shared part of a conditional prefix; ``voice`` changes with the audio."""

    owner: str | None
    voice: str
    language: int


class NullKey(NamedTuple):
    """Cache key of the unconditional prefix."""

    language: int


class PrefixCache:
    """LRU cache of the shared parts of one model's prefixes, of so many bytes. Not thread-safe."""

    def __init__(
        self,
        model: Valle,
        *,
        max_bytes: int = DEFAULT_MAX_BYTES,
        new_cache: Callable[[int, int], SlotCache] | None = None,
    ) -> None:
        self._model, self._max_bytes = model, max_bytes
        self.new_cache = new_cache or model.new_cache
        self._entries: OrderedDict[tuple[Hashable, int, int], SlotCache] = OrderedDict()
        self._pins: Counter[Hashable] = Counter()
        self.bytes = 0

    @property
    def parts(self) -> int:
        """Number of cached parts."""
        return len(self._entries)

    def clear(self) -> None:
        """Drop all entries, pinned ones too."""
        self._entries.clear()
        self.bytes = 0

    @contextmanager
    def pinned(self, *keys: Hashable) -> Iterator[None]:
        """Protect entries of these keys, at all levels, from eviction within the context."""
        self._pins.update(keys)
        try:
            yield
        finally:
            self._pins -= Counter(keys)
            self._evict()

    @torch.inference_mode()
    def begin(
        self, prefix: Prefix, level: int, cache: SlotCache, slot: int, key: Hashable | None
    ) -> Prefix:
        """Load the shared part of a prefix into an empty slot; return the rest, which may be empty.

        The part is always computed by itself, cached or not, so that the bits of a slot do not
        depend on what is in the cache. A ``key`` (what the part depends on) of None caches nothing.
        """
        if prefix.shared:
            part = prefix[: prefix.shared]
            found = self._compute(part, level) if key is None else self._get(key, part, level)
            cache.load(slot, found)
        return prefix[prefix.shared :]

    def _get(self, key: Hashable, part: Prefix, level: int) -> SlotCache:
        """Return the entry of a key, computing it on a miss."""
        # A request may omit the prompt: the shared part is then shorter under the same key.
        place = (key, level, len(part))
        if place not in self._entries:
            self._entries[place] = self._compute(part, level)
            self.bytes += self._entries[place].bytes
        self._entries.move_to_end(place)
        entry = self._entries[place]
        self._evict()
        return entry

    def _compute(self, part: Prefix, level: int) -> SlotCache:
        cache = self.new_cache(1, len(part))
        ranks = self._model.ranks(level, part.blocks)
        self._model.transformer.extend(part.embeddings, part.positions, cache, 0, ranks)
        return cache

    def _evict(self) -> None:
        """Drop least recently used entries until the rest fits, except pinned ones."""
        for place in list(self._entries):
            if self.bytes <= self._max_bytes:
                return
            if not self._pins[place[0]]:
                self.bytes -= self._entries.pop(place).bytes

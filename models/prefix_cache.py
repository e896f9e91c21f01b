"""What many sequences begin with, read once: keys and values are copied into their slots.

A voice's prompt is most of what stands before the response, and the same for every text; so is the
condition that says nothing. See `models.valle.Prefix.shared` for why the copy is exact.
"""

from collections import Counter, OrderedDict
from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

import torch

from models.prefix import Prefix
from models.stack.slot_cache import SlotCache
from models.valle import Valle

DEFAULT_MAX_BYTES = 256 << 20


class VoiceKey(NamedTuple):
    """What the shared part of a prefix is a function of, together with model and level.

    `voice` is a `models.voices.voice.Voice.key`, so that nothing need be forgotten when a name
    comes to mean another voice.
    """

    owner: str | None
    voice: str
    language: int


class NullKey(NamedTuple):
    """The same of the prefix that says nothing."""

    language: int


class PrefixCache:
    """The shared parts of prefixes under one model; the most recently used are kept.

    One thread only: a thread that reads prefixes has its own.

    Attributes:
        bytes: Of all keys and values that are kept.
        misses: How many parts were read by the model, over all time.
    """

    def __init__(self, model: Valle, *, max_bytes: int = DEFAULT_MAX_BYTES) -> None:
        """Keep nothing yet.

        Args:
            model: Whose prefixes they are.
            max_bytes: More than this is kept only while it is pinned.
        """
        self._model, self._max_bytes = model, max_bytes
        self._kept: OrderedDict[tuple[Hashable, int, int], SlotCache] = OrderedDict()
        self._pins: Counter[Hashable] = Counter()
        self.bytes = self.misses = 0

    @property
    def parts(self) -> int:
        """How many are kept."""
        return len(self._kept)

    def clear(self) -> None:
        """Keep nothing any more, whatever is pinned."""
        self._kept.clear()
        self.bytes = 0

    @contextmanager
    def pinned(self, *keys: Hashable) -> Iterator[None]:
        """Keep what is read under these keys, all levels, as long as the context lasts."""
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
        """Put the shared part of a prefix into a slot.

        The part is always read by itself, kept or not, so that the bits of a slot do not depend
        on what was read before.

        Args:
            prefix: Of the level.
            level: Which level is to be predicted.
            cache: Its slot is empty.
            slot: Which one.
            key: What the shared part depends on; None: read it and keep nothing.

        Returns:
            The rest of the prefix, still to be read; it may be of length 0.

        Raises:
            ValueError: The slot is not empty or too short.
        """
        if prefix.shared:
            part = prefix[: prefix.shared]
            cache.load(slot, self._read(part, level) if key is None else self._of(key, part, level))
        return prefix[prefix.shared :]

    def _of(self, key: Hashable, part: Prefix, level: int) -> SlotCache:
        # The prompt may be left out for one request: then less is shared under the same key.
        place = (key, level, len(part))
        if place not in self._kept:
            self._kept[place] = self._read(part, level)
            self.bytes += self._kept[place].bytes
        self._kept.move_to_end(place)
        kept = self._kept[place]
        self._evict()
        return kept

    def _read(self, part: Prefix, level: int) -> SlotCache:
        cache = self._model.new_cache(1, len(part))
        ranks = self._model.ranks(level, part.blocks)
        self._model.transformer.extend(part.embeddings, part.positions, cache, 0, ranks)
        self.misses += 1
        return cache

    def _evict(self) -> None:
        """Drop the longest unused until the rest fits, but nothing that is pinned."""
        for place in list(self._kept):
            if self.bytes <= self._max_bytes:
                return
            if not self._pins[place[0]]:
                self.bytes -= self._kept.pop(place).bytes

"""Prefix caching: keys and values of the shared part of prefixes, computed once and copied.

A voice's prompt is most of the prefix and the same for every text; so is the unconditional prefix
of guidance. See `models.prefix.Prefix.shared` for why the copy is exact.
"""

from collections import Counter, OrderedDict
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import torch
from torch import Tensor

from models.prefix import Prefix
from models.stack.slot_cache import SlotCache
from models.stack.taps import NO_TAPS, Taps
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


Read = Callable[
    [Sequence[Prefix], Sequence[tuple[SlotCache, int]]], Sequence[tuple[Tensor, Tensor]]
]
"""Appends each of some prefixes to a slot of a cache; see `one_by_one`, which does."""


def one_by_one(model: Valle, taps: Taps = NO_TAPS) -> Read:
    """Return what reads prefixes one after the other, and gives for each what `Valle.read` does."""
    return lambda prefixes, places: [
        model.read(prefix, *place, taps) for prefix, place in zip(prefixes, places, strict=True)
    ]


class SlotPrefix(NamedTuple):
    """A prefix that is to be read into an empty slot."""

    prefix: Prefix
    slot: int
    key: Hashable | None  # what its shared part depends on beside the level; None: it is not cached


class PrefixCache:
    """LRU cache of the shared parts of one model's prefixes, of so many bytes. Not thread-safe."""

    def __init__(
        self,
        model: Valle,
        *,
        max_bytes: int = DEFAULT_MAX_BYTES,
        new_cache: Callable[[int, int], SlotCache] | None = None,
    ) -> None:
        self._model = model
        self._max_bytes = max_bytes
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
    def begin(self, wanted: Sequence[SlotPrefix], cache: SlotCache, read: Read) -> list[Prefix]:
        """Load the shared parts of prefixes into empty slots; return the rests, some may be empty.

        A part is always computed by itself, cached or not, so that the bits of a slot do not
        depend on what is in the cache.
        """
        parts = [one.prefix[: one.prefix.shared] for one in wanted]
        # A request may omit the prompt: the shared part is then shorter under the same key.
        places = [
            None if key is None else (key, part.level, len(part))
            for part, (_, _, key) in zip(parts, wanted, strict=True)
        ]
        found = [None if place is None else self._entries.get(place) for place in places]
        missing = [at for at, part in enumerate(parts) if len(part) and found[at] is None]
        made = {at: self.new_cache(1, len(parts[at])) for at in missing}
        if made:
            read([parts[at] for at in made], [(one, 0) for one in made.values()])
        for at, (place, one) in enumerate(zip(places, wanted, strict=True)):
            # Held until all are loaded, whatever is evicted for others.
            entry = found[at] = made.get(at, found[at])
            if entry is None:
                continue
            if place is not None:
                if at in made:
                    self._entries[place] = entry
                    self.bytes += entry.bytes
                if place in self._entries:  # and was not dropped for another
                    self._entries.move_to_end(place)
                self._evict()
            cache.load(one.slot, entry)
        return [one.prefix[one.prefix.shared :] for one in wanted]

    @torch.inference_mode()
    def read(
        self, wanted: Sequence[SlotPrefix], cache: SlotCache, read: Read
    ) -> Sequence[tuple[Tensor, Tensor]]:
        """As `begin`, and append the rest of each prefix, where there is one; returns as `Read`."""
        rests = self.begin(wanted, cache, read)
        places = [(cache, one.slot) for one, rest in zip(wanted, rests, strict=True) if len(rest)]
        return read([rest for rest in rests if len(rest)], places)

    @torch.inference_mode()
    def replace(
        self, wanted: Sequence[SlotPrefix], cache: SlotCache, read: Read, *, old: int
    ) -> Sequence[tuple[Tensor, Tensor]]:
        """As `read`, into slots that hold other prefixes, of ``old`` positions each.

        What is behind those keeps its keys and values, and is behind the new ones then.
        """
        held = [cache.lift(one.slot, old, cache.lengths[one.slot]) for one in wanted]
        for one in wanted:
            cache.rewind(one.slot, 0)
        found = self.read(wanted, cache, read)
        for one, kept in zip(wanted, held, strict=True):
            cache.lay(one.slot, kept)
        return found

    def _evict(self) -> None:
        """Drop least recently used entries until the rest fits, except pinned ones."""
        for place in list(self._entries):
            if self.bytes <= self._max_bytes:
                return
            if not self._pins[place[0]]:
                self.bytes -= self._entries.pop(place).bytes

"""In which order texts are read: askers take turns, and each is read its shortest text first.

Start-time fair queueing (Goyal, Vin and Cheng 1996): every asker has a tag, the characters that
were read for it. Of those that wait the one with the lowest tag comes next, and begins no lower
than the one that is read now, so that whoever asked for nothing until now saved up nothing.
"""

from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import count
from typing import Generic, TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Turn(Generic[T]):
    """A text whose turn has come.

    Attributes:
        asker: Whose it is.
        length: Its characters.
        item: What is read.
    """

    asker: str
    length: int
    item: T


class Turns(Generic[T]):
    """Texts that wait to be read. Not thread-safe."""

    def __init__(self) -> None:
        self._waiting: dict[str, list[tuple[int, int, T]]] = {}
        self._tags: dict[str, int] = {}
        self._now = 0  # the tag at which the text that is read now began
        self._added = count()

    def add(self, asker: str, length: int, item: T) -> None:
        """Let a text wait.

        Args:
            length: Its characters, or what else of work is as long as so many.
            item: What is read.
        """
        if asker not in self._waiting:
            self._waiting[asker] = []
            self._tags[asker] = max(self._now, self._tags.get(asker, 0))
        heappush(self._waiting[asker], (length, next(self._added), item))

    def next(self, during: Turn[T] | None = None) -> Turn[T] | None:
        """Return the text to read next; None if there is none.

        Args:
            during: The text that is being read: only one that goes before its rest is returned.
                That is a shorter one of the same asker, or one of an asker for whom less was read.
        """
        asker = self._first(during)
        if asker is None:
            return None
        if during is None and len(self._waiting) == 1:
            # Nobody else waits and nothing is read: whatever was before delays nobody.
            self._now = max(self._tags.values())
            self._tags = {asker: self._now}
        waiting = self._waiting[asker]
        length, _, item = heappop(waiting)
        self._now = max(self._now, self._tags[asker])
        self._tags[asker] += length
        if not waiting:
            del self._waiting[asker]
            # Of who does not wait, a tag that has been passed says no more than none.
            tags = self._tags.items()
            self._tags = {one: n for one, n in tags if n > self._now or one in self._waiting}
        return Turn(asker, length, item)

    def clear(self) -> list[T]:
        """Remove all and return them."""
        items = [item for waiting in self._waiting.values() for *_, item in waiting]
        self._waiting.clear()
        return items

    def _first(self, during: Turn[T] | None) -> str | None:
        """Return whose turn it is."""
        if not self._waiting:
            return None
        # Of two with the same tag, whoever has the shorter text.
        asker = min(self._waiting, key=lambda one: (self._tags[one], self._waiting[one][0]))
        if during is None:
            return asker
        own = self._waiting.get(during.asker)
        if asker != during.asker and self._tags[asker] < self._tags.get(during.asker, self._now):
            return asker
        return during.asker if own and own[0][0] < during.length else None

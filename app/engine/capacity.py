"""How many listeners can be served in real time, by what their sound costs here and now."""

import math

FORGET_S = 60.0
"""Seconds of sound over which a cost is forgotten."""

SHARE = 0.8
"""Of what was measured: more listeners make each a little dearer, and chunks come in lumps."""

LEAST = 2
"""Where not even so many keep up, nobody waits: to be made side by side is at least quicker."""


class Capacity:
    """What a second of sound costs the worker that makes it, an average that forgets."""

    def __init__(self) -> None:
        """Know nothing."""
        self._work_s = self._sound_s = 0.0

    def note(self, work_s: float, sound_s: float) -> None:
        """Take the work on a piece of sound into account.

        Args:
            work_s: Seconds that it took.
            sound_s: Its length; work may come first, and its sound later.
        """
        kept = math.exp(-sound_s / FORGET_S)
        self._work_s = kept * self._work_s + work_s
        self._sound_s = kept * self._sound_s + sound_s

    @property
    def listeners(self) -> float:
        """How many at once; no end of them while nothing is known, or where it is hopeless."""
        if not self._sound_s or not self._work_s:
            return math.inf
        many = math.floor(SHARE * self._sound_s / self._work_s)
        return many if many >= LEAST else math.inf

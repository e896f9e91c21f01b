"""Faster or slower, at the same pitch."""

from typing import Final

import numpy as np

from app.audio.filter_graph import FilterGraph
from app.engine.job import Samples

MIN_SPEED: Final = 0.25
MAX_SPEED: Final = 4.0

_LEAST, _MOST = 0.5, 2.0  # of one atempo; above 2 it would leave sound out
_BLOCKS_A_S: Final = 50
_TAIL_S: Final = 0.3  # more than the filters hold back, at any speed


class Tempo:
    """Changes how fast a speech is, as it comes; to the sample as long as it should be.

    What comes out does not depend on the pieces that went in.
    """

    def __init__(self, speed: float, sample_rate_hz: int) -> None:
        """Begin before the first sample.

        Args:
            speed: From 0.25, a quarter as fast, to 4.
            sample_rate_hz: Samples in a second.
        """
        self._filters = FilterGraph(
            [("atempo", f"{factor:.9f}") for factor in _factors(speed)], sample_rate_hz
        )
        self._speed, self._rate_hz = speed, sample_rate_hz
        # The filter rounds where a piece ends, so that all pieces must be alike.
        self._block = sample_rate_hz // _BLOCKS_A_S
        self._waiting = np.zeros(0, np.float32)
        self._taken = self._given = 0

    def push(self, samples: Samples) -> Samples:
        """Take samples ``[n]`` and return those ``[m]`` that are certain."""
        self._taken += len(samples)
        return self._through(samples)

    def close(self) -> Samples:
        """Return the rest ``[m]``; nothing may be pushed after."""
        left = round(self._taken / self._speed) - self._given
        # Silence pushes out what the filter holds back; by itself it would drop some of that.
        rest = self._through(np.zeros(round(_TAIL_S * self._rate_hz), np.float32))
        return np.concatenate([rest, self._filters.close()])[: max(0, left)]

    def _through(self, samples: Samples) -> Samples:
        self._waiting = np.concatenate([self._waiting, samples])
        whole = len(self._waiting) - len(self._waiting) % self._block
        blocks, self._waiting = self._waiting[:whole], self._waiting[whole:]
        starts = range(0, whole, self._block)
        parts = [self._filters.push(blocks[start : start + self._block]) for start in starts]
        out = np.concatenate([np.zeros(0, np.float32), *parts])
        self._given += len(out)
        return out


def _factors(speed: float) -> list[float]:
    """Return factors of a speed that one filter can do each."""
    factors = []
    while speed > _MOST or speed < _LEAST:
        factors.append(_MOST if speed > _MOST else _LEAST)
        speed /= factors[-1]
    return [*factors, speed]

"""Change of tempo at constant pitch."""

from typing import Final

import numpy as np

from app.engine.results import Samples
from models.voices.libav import FilterGraph

# Of one atempo filter; above 2 it skips samples
_LEAST = 0.5
_MOST = 2.0
_BLOCKS_A_S: Final = 50
_TAIL_S: Final = 0.3  # exceeds the filters' delay at any speed


class Tempo:
    """Changes the tempo incrementally, 0.25 to 4 times, to exactly N / speed samples.

    The output does not depend on how the input is cut into pushes.
    """

    def __init__(self, speed: float, sample_rate_hz: int) -> None:
        self._filters = FilterGraph(
            [("atempo", f"{factor:.9f}") for factor in _factors(speed)], sample_rate_hz
        )
        self._speed = speed
        self._rate_hz = sample_rate_hz
        # The filter rounds at the end of each push, so all pushes have the same size.
        self._block = sample_rate_hz // _BLOCKS_A_S
        self._waiting = np.zeros(0, np.float32)
        self._samples_in = self._samples_out = 0

    def push(self, samples: Samples) -> Samples:
        """Filter samples ``[n]`` and return those ``[m]`` that are complete."""
        self._samples_in += len(samples)
        return self._filtered(samples)

    def close(self) -> Samples:
        """Return the remaining samples ``[m]``; nothing may be pushed after."""
        left = round(self._samples_in / self._speed) - self._samples_out
        # Silence flushes the delay; closing the filter alone would drop some of it.
        rest = self._filtered(np.zeros(round(_TAIL_S * self._rate_hz), np.float32))
        return np.concatenate([rest, self._filters.close()])[: max(0, left)]

    def _filtered(self, samples: Samples) -> Samples:
        self._waiting = np.concatenate([self._waiting, samples])
        whole = len(self._waiting) - len(self._waiting) % self._block
        blocks = self._waiting[:whole]
        self._waiting = self._waiting[whole:]
        starts = range(0, whole, self._block)
        parts = [self._filters.push(blocks[start : start + self._block]) for start in starts]
        out = np.concatenate([np.zeros(0, np.float32), *parts])
        self._samples_out += len(out)
        return out


def _factors(speed: float) -> list[float]:
    """Factor a speed into tempos that one filter supports each."""
    factors = []
    while speed > _MOST or speed < _LEAST:
        factors.append(_MOST if speed > _MOST else _LEAST)
        speed /= factors[-1]
    return [*factors, speed]

"""Every speech as loud as another, by the measure of ITU-R BS.1770 (EBU R 128)."""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from app.audio.filter_graph import FilterGraph
from app.engine.job import Samples
from models.voices.loudness import loudness_lufs

QUIETEST_LUFS: Final = -40.0
LOUDEST_LUFS: Final = -10.0

_CEILING_DB: Final = -1.0
_MOST_GAIN_DB: Final = 24.0  # more would only make noise of what is nearly silent
_BLOCK_S: Final = 0.4  # what BS.1770 measures at a time
_SETTLED_S: Final = 10.0
_LIKELY_S: Final = 3.0  # of sound heard weigh as much as what is likely beforehand


def gain_db(samples: Samples, sample_rate_hz: int, target_lufs: float) -> float | None:
    """Return what brings a sound ``[N]`` to a loudness; None where it is silent."""
    loudness = loudness_lufs(samples, sample_rate_hz)
    return min(target_lufs - loudness, _MOST_GAIN_DB) if np.isfinite(loudness) else None


def amplified(samples: Samples, decibels: float | NDArray[np.float64]) -> Samples:
    """Return samples ``[N]`` with a gain, or with one for each."""
    return np.asarray(samples * 10 ** (decibels / 20), np.float32)


class Leveller:
    """Brings a speech to a loudness while it comes, so that its end is not known.

    The gain is what all that was heard so far asks for, measured every 0.4 s and reached 0.4 s
    later, without steps; after 10 s it stays. The first 0.4 s of sound wait for their own measure.
    Speakers begin louder than they end, so that alone would be too quiet: where it is known how
    loud the speech will likely be, that counts too, the less the more was heard. What comes out
    does not depend on the pieces that went in.
    """

    def __init__(
        self, target_lufs: float, sample_rate_hz: int, likely_lufs: float | None = None
    ) -> None:
        """Begin before the first sample.

        Args:
            target_lufs: How loud it is to be.
            sample_rate_hz: Samples in a second.
            likely_lufs: How loud it will likely come; None where nobody knows.
        """
        self._likely_lufs = likely_lufs
        self._target_lufs, self._rate_hz = target_lufs, sample_rate_hz
        self._hop = round(_BLOCK_S * sample_rate_hz)
        self._heard = np.zeros(0, np.float32)  # what is measured: at most 10 s
        self._held = np.zeros(0, np.float32)  # what waits for the first gain
        self._taken = 0
        self._gain_db: float | None = None  # where the last measurement was made
        self._next_db = 0.0  # where the next one will be

    def push(self, samples: Samples) -> Samples:
        """Take samples ``[n]`` and return those ``[m]`` that are certain."""
        parts = [np.zeros(0, np.float32)]
        while len(samples):
            place = self._taken % self._hop
            piece, samples = np.split(samples, [self._hop - place])
            self._taken += len(piece)
            if len(self._heard) < _SETTLED_S * self._rate_hz:
                self._heard = np.concatenate([self._heard, piece])
            parts.append(self._ramp(piece, place))
            if place + len(piece) == self._hop:
                parts.append(self._measure())
        return np.concatenate(parts)

    def close(self) -> Samples:
        """Return the rest ``[m]``; nothing may be pushed after."""
        return amplified(self._held, self._wanted_db(self._held) or 0.0)

    def _ramp(self, samples: Samples, place: int) -> Samples:
        """Return samples on the way from gain to gain; keep them while there is none."""
        if self._gain_db is None:
            self._held = np.concatenate([self._held, samples])
            return samples[:0]
        way = np.arange(place + 1, place + len(samples) + 1) / self._hop
        return amplified(samples, self._gain_db + (self._next_db - self._gain_db) * way)

    def _measure(self) -> Samples:
        """Decide on the next gain, and return what waited for the first."""
        if self._gain_db is not None:
            self._gain_db = self._next_db
        if len(self._heard) >= _SETTLED_S * self._rate_hz:
            return self._held[:0]
        wanted_db = self._wanted_db(self._heard)
        if wanted_db is None:  # a pause before the first word, which says nothing
            self._heard = self._heard[:0]
            return self._held[:0]
        self._gain_db = wanted_db if self._gain_db is None else self._gain_db
        self._next_db = wanted_db
        waited, self._held = self._held, self._held[:0]
        return amplified(waited, wanted_db)

    def _wanted_db(self, heard: Samples) -> float | None:
        """Return the gain that some sound ``[N]`` asks for; None where it is silent."""
        measured_db = gain_db(heard, self._rate_hz, self._target_lufs)
        if measured_db is None or self._likely_lufs is None:
            return measured_db
        likely_db = min(self._target_lufs - self._likely_lufs, _MOST_GAIN_DB)
        heard_s = len(heard) / self._rate_hz
        return (heard_s * measured_db + _LIKELY_S * likely_db) / (heard_s + _LIKELY_S)


class Limiter(FilterGraph):
    """Keeps peaks under -1 dB of full scale, turning down a few milliseconds around each.

    What has no such peak comes out to the bit.
    """

    def __init__(self, sample_rate_hz: int) -> None:
        """Begin before the first sample."""
        ceiling = 10 ** (_CEILING_DB / 20)
        super().__init__(
            [("alimiter", f"limit={ceiling:.6f}:level=false:latency=true")], sample_rate_hz
        )

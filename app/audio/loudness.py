"""Loudness normalisation by ITU-R BS.1770 (EBU R 128), and peak limiting."""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from app.engine.results import Samples
from models.voices.libav import FilterGraph
from models.voices.loudness import loudness_lufs

_CEILING_DB: Final = -1.0
_MOST_GAIN_DB: Final = 24.0  # more would amplify noise
_BLOCK_S: Final = 0.4  # gating block of BS.1770
_SETTLED_S: Final = 10.0
_LIKELY_WEIGHT_S: Final = 3.0  # weight of the expected loudness, as seconds of sound


def gain_db(samples: Samples, sample_rate_hz: int, target_lufs: float) -> float | None:
    """Return the gain in dB that brings samples ``[N]`` to a loudness; None if they are silent."""
    loudness = loudness_lufs(samples, sample_rate_hz)
    return min(target_lufs - loudness, _MOST_GAIN_DB) if np.isfinite(loudness) else None


def apply_gain(samples: Samples, decibels: float | NDArray[np.float64]) -> Samples:
    """Return samples ``[N]`` times a gain in dB, one for all or one for each ``[N]``."""
    return np.asarray(samples * 10 ** (decibels / 20), np.float32)


class Leveller:
    """Brings a speech to a target loudness while it is generated.

    The gain follows the loudness of all samples so far, measured every 0.4 s, interpolated over the
    following 0.4 s, and constant after 10 s. The first 0.4 s of sound are held until they are
    measured. Speech begins louder than it ends, so this alone would be too quiet: ``likely_lufs``,
    where known, is averaged in with the weight of 3 s of sound. The output does not depend on how
    the input is cut into pushes.
    """

    def __init__(
        self, target_lufs: float, sample_rate_hz: int, likely_lufs: float | None = None
    ) -> None:
        self._likely_lufs = likely_lufs
        self._target_lufs = target_lufs
        self._rate_hz = sample_rate_hz
        self._hop = round(_BLOCK_S * sample_rate_hz)
        self._measured = np.zeros(0, np.float32)  # the samples to measure, at most 10 s
        self._held = np.zeros(0, np.float32)  # samples that wait for the first gain
        self._taken = 0
        self._gain_db: float | None = None  # at the start of the current block
        self._next_db = 0.0  # at its end

    def push(self, samples: Samples) -> Samples:
        """Measure and scale samples ``[n]``; return those ``[m]`` that are complete."""
        parts = [np.zeros(0, np.float32)]
        while len(samples):
            place = self._taken % self._hop
            piece, samples = np.split(samples, [self._hop - place])
            self._taken += len(piece)
            if len(self._measured) < _SETTLED_S * self._rate_hz:
                self._measured = np.concatenate([self._measured, piece])
            parts.append(self._ramp(piece, place))
            if place + len(piece) == self._hop:
                parts.append(self._measure())
        return np.concatenate(parts)

    def close(self) -> Samples:
        """Return the remaining samples ``[m]``; nothing may be pushed after."""
        return apply_gain(self._held, self._wanted_db(self._held) or 0.0)

    def _ramp(self, samples: Samples, place: int) -> Samples:
        """Apply the interpolated gain to samples; hold them while there is none yet."""
        if self._gain_db is None:
            self._held = np.concatenate([self._held, samples])
            return samples[:0]
        position = np.arange(place + 1, place + len(samples) + 1) / self._hop
        return apply_gain(samples, self._gain_db + (self._next_db - self._gain_db) * position)

    def _measure(self) -> Samples:
        """Update the gain at the end of a block; return samples held for the first gain."""
        if self._gain_db is not None:
            self._gain_db = self._next_db
        if len(self._measured) >= _SETTLED_S * self._rate_hz:
            return self._held[:0]
        wanted_db = self._wanted_db(self._measured)
        if wanted_db is None:  # silence before the first word is not measured
            self._measured = self._measured[:0]
            return self._held[:0]
        self._gain_db = wanted_db if self._gain_db is None else self._gain_db
        self._next_db = wanted_db
        held = self._held
        self._held = self._held[:0]
        return apply_gain(held, wanted_db)

    def _wanted_db(self, samples: Samples) -> float | None:
        """Return the gain in dB for the measured samples ``[N]``; None if they are silent."""
        measured_db = gain_db(samples, self._rate_hz, self._target_lufs)
        if measured_db is None or self._likely_lufs is None:
            return measured_db
        likely_db = min(self._target_lufs - self._likely_lufs, _MOST_GAIN_DB)
        seconds = len(samples) / self._rate_hz
        return (seconds * measured_db + _LIKELY_WEIGHT_S * likely_db) / (seconds + _LIKELY_WEIGHT_S)


class Limiter(FilterGraph):
    """Keeps peaks under -1 dB of full scale, with a gain that changes over a few milliseconds.

    Samples without such a peak pass unchanged.
    """

    def __init__(self, sample_rate_hz: int) -> None:
        ceiling = 10 ** (_CEILING_DB / 20)
        super().__init__(
            [("alimiter", f"limit={ceiling:.6f}:level=false:latency=true")], sample_rate_hz
        )

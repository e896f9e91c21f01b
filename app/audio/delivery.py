"""Tempo and loudness of a speech, whole or incrementally. Neither changes its codes."""

from collections import deque
from collections.abc import Iterator
from typing import Protocol

import numpy as np

from app.audio.loudness import Leveller, Limiter, apply_gain, gain_db
from app.audio.tempo import Tempo
from app.engine.job import Samples


class _AudioFilter(Protocol):
    """Processes samples incrementally; output may lag behind input."""

    def push(self, samples: Samples) -> Samples: ...

    def close(self) -> Samples: ...


class Delivery:
    """Applies speed and loudness incrementally; by default samples are unchanged.

    Not thread-safe. Takes milliseconds, so do not call it on the event loop.
    """

    def __init__(
        self,
        sample_rate_hz: int,
        *,
        speed: float,
        loudness_lufs: float | None,
        likely_lufs: float | None = None,
    ) -> None:
        """Initialise the filters.

        Args:
            sample_rate_hz: Sample rate.
            speed: Playback speed; 1 is unchanged.
            loudness_lufs: Target loudness; None is unchanged.
            likely_lufs: Expected loudness of the samples; None if unknown.
        """
        self._stages: list[_AudioFilter] = []
        if speed != 1:
            self._stages.append(Tempo(speed, sample_rate_hz))
        if loudness_lufs is not None:
            leveller = Leveller(loudness_lufs, sample_rate_hz, likely_lufs)
            self._stages += [leveller, Limiter(sample_rate_hz)]

    @property
    def plain(self) -> bool:
        """Whether samples pass unchanged, which takes no time."""
        return not self._stages

    def push(self, samples: Samples) -> Samples:
        """Filter samples ``[n]`` and return those ``[m]`` that are complete."""
        for stage in self._stages:
            samples = stage.push(samples)
        return samples

    def close(self) -> Samples:
        """Return the remaining samples ``[m]``; nothing may be pushed after."""
        samples = np.zeros(0, np.float32)
        for stage in self._stages:
            samples = _last(stage, samples)
        return samples


def deliver(
    samples: Samples, sample_rate_hz: int, *, speed: float, loudness_lufs: float | None
) -> Samples:
    """Return a whole speech ``[N]`` at a speed and loudness, with one gain measured on all of it.

    Args:
        samples: The speech.
        sample_rate_hz: Sample rate.
        speed: Playback speed; 1 is unchanged.
        loudness_lufs: Target loudness; None is unchanged.
    """
    if speed == 1 and loudness_lufs is None:
        return samples
    steps = deliver_in_steps(
        iter([samples]), sample_rate_hz, speed=speed, loudness_lufs=loudness_lufs
    )
    return np.concatenate(list(steps))


def deliver_in_steps(
    portions: Iterator[Samples],
    sample_rate_hz: int,
    *,
    speed: float,
    loudness_lufs: float | None,
) -> Iterator[Samples]:
    """Yield a whole speech at a speed and loudness, a portion at a time, often an empty one.

    Args:
        portions: The speech, ``[n]`` each; consumed one by one, so that each step is short.
        sample_rate_hz: Sample rate.
        speed: Playback speed; 1 is unchanged.
        loudness_lufs: Target loudness; None is unchanged.
    """
    if speed != 1:
        portions = _filtered(Tempo(speed, sample_rate_hz), portions)
    if loudness_lufs is None:
        yield from portions
        return
    held: deque[Samples] = deque()
    for portion in portions:
        held.append(portion)
        yield portion[:0]
    nothing = np.zeros(0, np.float32)
    gain = gain_db(np.concatenate([nothing, *held]), sample_rate_hz, loudness_lufs) or 0.0
    scaled = (apply_gain(held.popleft(), gain) for _ in range(len(held)))
    yield from _filtered(Limiter(sample_rate_hz), scaled)


def _filtered(stage: _AudioFilter, portions: Iterator[Samples]) -> Iterator[Samples]:
    """Yield the output of a filter for each portion, then its remaining samples."""
    for portion in portions:
        yield stage.push(portion)
    yield stage.close()


def _last(stage: _AudioFilter, samples: Samples) -> Samples:
    """Push samples through a filter and close it; return all its output."""
    return np.concatenate([stage.push(samples), stage.close()])

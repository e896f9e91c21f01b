"""How a speech is delivered: how loud and how fast. Codes and words are settled before."""

from collections import deque
from collections.abc import Iterator
from typing import Protocol

import numpy as np

from app.audio.loudness import Leveller, Limiter, amplified, gain_db
from app.audio.tempo import Tempo
from app.engine.job import Samples


class _Stage(Protocol):
    def push(self, samples: Samples) -> Samples: ...

    def close(self) -> Samples: ...


class Delivery:
    """Shapes samples as they come; those of plain speed and no wanted loudness stay as they are.

    For one thread at a time; it takes milliseconds, so not the event loop's.
    """

    def __init__(
        self,
        sample_rate_hz: int,
        *,
        speed: float,
        loudness_lufs: float | None,
        likely_lufs: float | None = None,
    ) -> None:
        """Begin before the first sample.

        Args:
            sample_rate_hz: Samples in a second.
            speed: 1 is as it was spoken.
            loudness_lufs: None is as it was spoken.
            likely_lufs: How loud it will likely be spoken; None where nobody knows.
        """
        self._stages: list[_Stage] = []
        if speed != 1:
            self._stages.append(Tempo(speed, sample_rate_hz))
        if loudness_lufs is not None:
            leveller = Leveller(loudness_lufs, sample_rate_hz, likely_lufs)
            self._stages += [leveller, Limiter(sample_rate_hz)]

    @property
    def plain(self) -> bool:
        """Whether samples stay as they are, which takes no time."""
        return not self._stages

    def push(self, samples: Samples) -> Samples:
        """Take samples ``[n]`` and return those ``[m]`` that are certain."""
        for stage in self._stages:
            samples = stage.push(samples)
        return samples

    def close(self) -> Samples:
        """Return the rest ``[m]``; nothing may be pushed after."""
        samples = np.zeros(0, np.float32)
        for stage in self._stages:
            samples = _last(stage, samples)
        return samples


def delivered(
    samples: Samples, sample_rate_hz: int, *, speed: float, loudness_lufs: float | None
) -> Samples:
    """Return a whole speech ``[N]`` as it is delivered: under one gain, for all of it is known.

    Args:
        samples: As they were spoken.
        sample_rate_hz: Samples in a second.
        speed: 1 is as it was spoken.
        loudness_lufs: None is as it was spoken.
    """
    if speed == 1 and loudness_lufs is None:
        return samples
    steps = delivered_in_steps(
        iter([samples]), sample_rate_hz, speed=speed, loudness_lufs=loudness_lufs
    )
    return np.concatenate(list(steps))


def delivered_in_steps(
    portions: Iterator[Samples],
    sample_rate_hz: int,
    *,
    speed: float,
    loudness_lufs: float | None,
) -> Iterator[Samples]:
    """Yield a whole speech as it is delivered, a portion at a time, often an empty one.

    Args:
        portions: As they were spoken; the next is asked for once the one before is done with.
        sample_rate_hz: Samples in a second.
        speed: 1 is as it was spoken.
        loudness_lufs: None is as it was spoken.
    """
    if speed != 1:
        portions = _through(Tempo(speed, sample_rate_hz), portions)
    if loudness_lufs is None:
        yield from portions
        return
    held: deque[Samples] = deque()
    for portion in portions:
        held.append(portion)
        yield portion[:0]
    nothing = np.zeros(0, np.float32)
    gain = gain_db(np.concatenate([nothing, *held]), sample_rate_hz, loudness_lufs) or 0.0
    louder = (amplified(held.popleft(), gain) for _ in range(len(held)))
    yield from _through(Limiter(sample_rate_hz), louder)


def _through(stage: _Stage, portions: Iterator[Samples]) -> Iterator[Samples]:
    for portion in portions:
        yield stage.push(portion)
    yield stage.close()


def _last(stage: _Stage, samples: Samples) -> Samples:
    """Return what a stage makes of samples and of all that it still holds."""
    return np.concatenate([stage.push(samples), stage.close()])

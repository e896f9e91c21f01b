"""What is asked of the sound of a file, and the filters for that: tempo, loudness, sample rate."""

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple, Protocol

import numpy as np

from app.audio.formats import DEFAULT_RATES, AudioFormat
from app.audio.loudness import Leveller, Limiter, apply_gain, gain_db
from app.engine.core import SampleRate
from app.engine.join.tempo import Tempo
from app.engine.results import Samples
from models.voices.libav import FilterGraph


class FileOptions(NamedTuple):
    """Format, speed, loudness and sample rate of an audio file; without one it is `rate_hz`."""

    form: AudioFormat
    speed: float = 1.0
    loudness_lufs: float | None = None
    sample_rate: SampleRate | None = None

    def rate_hz(self, model_rate_hz: int) -> int:
        """Return the sample rate of the file: as asked for, else the format's, or the model's."""
        return self.sample_rate or DEFAULT_RATES.get(self.form, model_rate_hz)


class _AudioFilter(Protocol):
    """Processes samples incrementally; output may lag behind input."""

    def push(self, samples: Samples) -> Samples: ...

    def close(self) -> Samples: ...


class _WholeLeveller:
    """Brings a whole speech to a loudness, all of it by one gain: held until it is measured."""

    def __init__(self, target_lufs: float, sample_rate_hz: int) -> None:
        self._target_lufs = target_lufs
        self._rate_hz = sample_rate_hz
        self._held = [np.zeros(0, np.float32)]

    def push(self, samples: Samples) -> Samples:
        self._held.append(samples)
        return samples[:0]

    def close(self) -> Samples:
        held = np.concatenate(self._held)
        self._held.clear()
        return apply_gain(held, gain_db(held, self._rate_hz, self._target_lufs) or 0.0)


class Delivery:
    """Applies speed, loudness and sample rate incrementally; by default samples are unchanged.

    Not thread-safe. Takes milliseconds, so do not call it on the event loop. The loudness of a
    ``whole`` speech is measured over all of it, which `close` then yields.
    """

    def __init__(
        self,
        output: FileOptions,
        sample_rate_hz: int,
        likely_lufs: float | None = None,
        *,
        whole: bool = False,
    ) -> None:
        self._rate_hz = sample_rate_hz
        self._stages: list[_AudioFilter] = []
        if output.speed != 1:
            self._stages.append(Tempo(output.speed, sample_rate_hz))
        if (target_lufs := output.loudness_lufs) is not None:
            self._stages.append(
                _WholeLeveller(target_lufs, sample_rate_hz)
                if whole
                else Leveller(target_lufs, sample_rate_hz, likely_lufs)
            )
            self._stages.append(Limiter(sample_rate_hz))
        if (output_hz := output.rate_hz(sample_rate_hz)) != sample_rate_hz:
            # libav's converter of sample rates holds 2 ms back at most.
            self._stages.append(FilterGraph([("aresample", f"{output_hz}")], sample_rate_hz))

    def push(self, samples: Samples) -> Samples:
        """Filter samples ``[n]`` and return those ``[m]`` that are complete."""
        return self._through(self._stages, samples)

    def close(self) -> Iterator[Samples]:
        """Yield the remaining samples ``[m]`` in portions; nothing may be pushed after."""
        for number, stage in enumerate(self._stages, start=1):
            for portion in split_portions(stage.close(), self._rate_hz):
                yield self._through(self._stages[number:], portion)

    def _through(self, stages: Sequence[_AudioFilter], samples: Samples) -> Samples:
        for stage in stages:
            samples = stage.push(samples)
        return samples


PORTION_S: Final = 2.0  # rendered in one step: milliseconds of work, tens at a quarter's speed


def split_portions(samples: Samples, sample_rate_hz: int) -> Iterator[Samples]:
    """Yield samples ``[N]`` in portions of at most `PORTION_S`; at least one."""
    most = round(PORTION_S * sample_rate_hz)
    for start in range(0, max(1, len(samples)), most):
        yield samples[start : start + most]

"""Render a speech as requested: speed, loudness and sample rate, then the bytes of one file."""

from collections import deque
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple, Protocol

import numpy as np

from app.audio.containers import open_container
from app.audio.formats import AudioFormat, SampleRate, file_rate_hz
from app.audio.loudness import Leveller, Limiter, apply_gain, gain_db
from app.engine.job import Samples
from app.engine.sound.joining.filter_graph import FilterGraph
from app.engine.sound.joining.tempo import Tempo


class OutputOptions(NamedTuple):
    """Format, speed, loudness and sample rate of the audio; none of them changes a code.

    Without a loudness it is unchanged, without a rate it is the format's usual one or the model's.
    """

    form: AudioFormat
    speed: float = 1.0
    loudness_lufs: float | None = None
    sample_rate: SampleRate | None = None

    def rate_hz(self, model_rate_hz: int) -> int:
        """Return the sample rate of the file."""
        return file_rate_hz(self.form, self.sample_rate, model_rate_hz)

    def instant(self, model_rate_hz: int) -> bool:
        """Return whether rendering a chunk is too fast to be worth a thread."""
        plain = self.speed == 1 and self.loudness_lufs is None
        return (
            self.form in {"wav", "pcm"} and plain and self.rate_hz(model_rate_hz) == model_rate_hz
        )


class _AudioFilter(Protocol):
    """Processes samples incrementally; output may lag behind input."""

    def push(self, samples: Samples) -> Samples: ...

    def close(self) -> Samples: ...


class Delivery:
    """Applies speed, loudness and sample rate incrementally; by default samples are unchanged.

    Not thread-safe. Takes milliseconds, so do not call it on the event loop.

    Args:
        likely_lufs: Expected loudness of the samples; None if unknown.
    """

    def __init__(
        self, output: OutputOptions, sample_rate_hz: int, likely_lufs: float | None = None
    ) -> None:
        self._stages: list[_AudioFilter] = []
        if output.speed != 1:
            self._stages.append(Tempo(output.speed, sample_rate_hz))
        if output.loudness_lufs is not None:
            leveller = Leveller(output.loudness_lufs, sample_rate_hz, likely_lufs)
            self._stages += [leveller, Limiter(sample_rate_hz)]
        if (output_hz := output.rate_hz(sample_rate_hz)) != sample_rate_hz:
            self._stages.append(_resampler(sample_rate_hz, output_hz))

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


def deliver_in_steps(
    portions: Iterator[Samples], sample_rate_hz: int, output: OutputOptions
) -> Iterator[Samples]:
    """Yield a whole speech as requested, a portion ``[n]`` at a time, often an empty one.

    The portions are consumed one by one, so that each step is short.
    """
    if output.speed != 1:
        portions = _filtered(Tempo(output.speed, sample_rate_hz), portions)
    if output.loudness_lufs is not None:
        portions = _levelled(portions, sample_rate_hz, output.loudness_lufs)
    if (output_hz := output.rate_hz(sample_rate_hz)) != sample_rate_hz:
        portions = _filtered(_resampler(sample_rate_hz, output_hz), portions)
    yield from portions


def _levelled(
    portions: Iterator[Samples], sample_rate_hz: int, loudness_lufs: float
) -> Iterator[Samples]:
    """Yield a whole speech at a loudness: nothing until all of it is measured."""
    held: deque[Samples] = deque()
    for portion in portions:
        held.append(portion)
        yield portion[:0]
    nothing = np.zeros(0, np.float32)
    gain = gain_db(np.concatenate([nothing, *held]), sample_rate_hz, loudness_lufs) or 0.0
    scaled = (apply_gain(held.popleft(), gain) for _ in range(len(held)))
    yield from _filtered(Limiter(sample_rate_hz), scaled)


def _resampler(sample_rate_hz: int, output_hz: int) -> FilterGraph:
    """Return libav's converter of sample rates, which holds 2 ms back at most."""
    return FilterGraph([("aresample", f"{output_hz}")], sample_rate_hz)


def _filtered(stage: _AudioFilter, portions: Iterator[Samples]) -> Iterator[Samples]:
    """Yield the output of a filter for each portion, then its remaining samples."""
    for portion in portions:
        yield stage.push(portion)
    yield stage.close()


def _last(stage: _AudioFilter, samples: Samples) -> Samples:
    """Push samples through a filter and close it; return all its output."""
    return np.concatenate([stage.push(samples), stage.close()])


PORTION_S: Final = 2.0  # rendered in one step: milliseconds of work, tens at a quarter's speed


class StreamRenderer:
    """Writes one audio file incrementally; arguments as of `Delivery`. Not thread-safe."""

    def __init__(
        self, output: OutputOptions, sample_rate_hz: int, likely_lufs: float | None = None
    ) -> None:
        self._delivery = Delivery(output, sample_rate_hz, likely_lufs)
        self._rate_hz, self._samples = output.rate_hz(sample_rate_hz), 0
        self._container = open_container(output.form, self._rate_hz)

    @property
    def audio_s(self) -> float:
        """Seconds of sound written so far."""
        return self._samples / self._rate_hz

    def push(self, samples: Samples) -> bytes:
        """Render samples ``[N]`` and return the bytes that are complete."""
        return self._written(self._delivery.push(samples))

    def close(self) -> bytes:
        """Return the remaining bytes; nothing may be pushed after."""
        return self._written(self._delivery.close()) + self._container.close()

    def _written(self, samples: Samples) -> bytes:
        self._samples += len(samples)
        return self._container.push(samples)


def render_in_steps(
    chunks: Iterable[Samples], sample_rate_hz: int, output: OutputOptions
) -> Iterator[tuple[bytes, int]]:
    """Render a whole speech step by step; yield the next bytes and the number of samples in them.

    The chunks, ``[N]`` each, are consumed one by one.
    """
    portions = (part for chunk in chunks for part in split_portions(chunk, sample_rate_hz))
    rate_hz = output.rate_hz(sample_rate_hz)
    container = open_container(output.form, rate_hz, whole=True)
    for shaped in deliver_in_steps(portions, sample_rate_hz, output):
        yield container.push(shaped), len(shaped)
    yield container.close(), 0


def split_portions(samples: Samples, sample_rate_hz: int) -> Iterator[Samples]:
    """Yield samples ``[N]`` in portions of at most `PORTION_S`; at least one."""
    most = round(PORTION_S * sample_rate_hz)
    for start in range(0, max(1, len(samples)), most):
        yield samples[start : start + most]

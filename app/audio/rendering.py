"""A speech as its listener asked for it: samples in, the bytes of one file out."""

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from app.audio.containers import open_container
from app.audio.delivery import Delivery, delivered_in_steps
from app.audio.formats import AudioFormat
from app.engine.job import Samples

PORTION_S: Final = 2.0
"""Seconds that are rendered at a time: some milliseconds, or tens of them at a quarter's speed."""


class OutputOptions(NamedTuple):
    """What is asked of the sound; none of it changes a code.

    Args:
        form: Its container.
        speed: 1 is as it was spoken.
        loudness_lufs: None is as it was spoken.
    """

    form: AudioFormat
    speed: float = 1.0
    loudness_lufs: float | None = None

    @property
    def instant(self) -> bool:
        """Whether rendering a chunk takes no time worth a thread."""
        return self.form in {"wav", "pcm"} and self.speed == 1 and self.loudness_lufs is None


class Rendering:
    """One file, written while its speech is made. For one thread at a time."""

    def __init__(
        self, manner: OutputOptions, sample_rate_hz: int, likely_lufs: float | None = None
    ) -> None:
        """Begin before the first sample.

        Args:
            manner: What is asked for.
            sample_rate_hz: Samples in a second.
            likely_lufs: How loud it will likely be spoken; None where nobody knows.
        """
        self._delivery = Delivery(
            sample_rate_hz,
            speed=manner.speed,
            loudness_lufs=manner.loudness_lufs,
            likely_lufs=likely_lufs,
        )
        self._container = open_container(manner.form, sample_rate_hz)
        self._rate_hz, self._samples = sample_rate_hz, 0

    @property
    def audio_s(self) -> float:
        """Seconds of sound that it holds by now."""
        return self._samples / self._rate_hz

    def push(self, samples: Samples) -> bytes:
        """Take samples ``[N]`` as they were spoken and return the bytes that are certain."""
        return self._written(self._delivery.push(samples))

    def close(self) -> bytes:
        """Return the rest of the bytes; nothing may be pushed after."""
        return self._written(self._delivery.close()) + self._container.close()

    def _written(self, samples: Samples) -> bytes:
        self._samples += len(samples)
        return self._container.push(samples)


def rendered_in_steps(
    chunks: Iterable[Samples], sample_rate_hz: int, manner: OutputOptions
) -> Iterator[tuple[bytes, int]]:
    """Yield a whole speech as a file, step by step: its next bytes, and how many samples they hold.

    Args:
        chunks: As they were spoken, ``[N]`` each; asked for one after the other.
        sample_rate_hz: Samples in a second.
        manner: What is asked for.
    """
    portions = (part for chunk in chunks for part in in_portions(chunk, sample_rate_hz))
    container = open_container(manner.form, sample_rate_hz, whole=True)
    for shaped in delivered_in_steps(
        portions, sample_rate_hz, speed=manner.speed, loudness_lufs=manner.loudness_lufs
    ):
        yield container.push(shaped), len(shaped)
    yield container.close(), 0


def in_portions(samples: Samples, sample_rate_hz: int) -> Iterator[Samples]:
    """Yield samples ``[N]`` in portions that are rendered in a short time; at least one."""
    most = round(PORTION_S * sample_rate_hz)
    for start in range(0, max(1, len(samples)), most):
        yield samples[start : start + most]

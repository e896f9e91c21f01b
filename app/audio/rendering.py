"""Render a speech as requested: samples to the bytes of one audio file."""

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from app.audio.containers import open_container
from app.audio.delivery import Delivery, deliver_in_steps
from app.audio.formats import AudioFormat
from app.engine.job import Samples

PORTION_S: Final = 2.0
"""Seconds of sound rendered in one step: milliseconds of work, tens of them at a quarter's speed.
"""


class OutputOptions(NamedTuple):
    """Format, speed and loudness of the audio; none of them changes a code.

    Args:
        form: Format of the file.
        speed: Playback speed; 1 is unchanged.
        loudness_lufs: Target loudness; None is unchanged.
    """

    form: AudioFormat
    speed: float = 1.0
    loudness_lufs: float | None = None

    @property
    def instant(self) -> bool:
        """Whether rendering a chunk is too fast to be worth a thread."""
        return self.form in {"wav", "pcm"} and self.speed == 1 and self.loudness_lufs is None


class StreamRenderer:
    """Writes one audio file incrementally. Not thread-safe."""

    def __init__(
        self, output: OutputOptions, sample_rate_hz: int, likely_lufs: float | None = None
    ) -> None:
        """Open a file.

        Args:
            output: What is requested.
            sample_rate_hz: Sample rate.
            likely_lufs: Expected loudness of the samples; None if unknown.
        """
        self._delivery = Delivery(
            sample_rate_hz,
            speed=output.speed,
            loudness_lufs=output.loudness_lufs,
            likely_lufs=likely_lufs,
        )
        self._container = open_container(output.form, sample_rate_hz)
        self._rate_hz, self._samples = sample_rate_hz, 0

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

    Args:
        chunks: The speech, ``[N]`` each; consumed one by one.
        sample_rate_hz: Sample rate.
        output: What is requested.
    """
    portions = (part for chunk in chunks for part in split_portions(chunk, sample_rate_hz))
    container = open_container(output.form, sample_rate_hz, whole=True)
    for shaped in deliver_in_steps(
        portions, sample_rate_hz, speed=output.speed, loudness_lufs=output.loudness_lufs
    ):
        yield container.push(shaped), len(shaped)
    yield container.close(), 0


def split_portions(samples: Samples, sample_rate_hz: int) -> Iterator[Samples]:
    """Yield samples ``[N]`` in portions of at most `PORTION_S`; at least one."""
    most = round(PORTION_S * sample_rate_hz)
    for start in range(0, max(1, len(samples)), most):
        yield samples[start : start + most]

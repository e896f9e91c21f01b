"""A file of sound that is written while the sound is made, and is there once it is whole."""

from pathlib import Path
from typing import Final

import numpy as np

from app.audio.containers import open_container
from app.audio.delivery import Delivery, delivered
from app.audio.rendering import OutputOptions
from app.commands.errors import CommandFailed
from app.engine.job import Samples

_MOST_BYTES: Final = 0xFFFFFFFF  # that a WAV can tell; players read a longer one to its end
_LENGTHS: Final = ((4, 8), (40, 44))  # where a WAV tells one, and how many bytes come before it


class SoundFile:
    """A sink of samples; what is written goes to a file beside it until `close`.

    It holds what a response that is sent whole would hold. A wanted loudness is measured on the
    whole, so that all samples are kept until then; otherwise none are.
    """

    def __init__(self, path: Path, manner: OutputOptions, sample_rate_hz: int) -> None:
        """Begin a file.

        Args:
            path: Where it will be.
            manner: What it will be.
            sample_rate_hz: Samples in a second; mono.

        Raises:
            CommandFailed: It cannot be written.
        """
        self._path, self._manner, self._rate_hz = path, manner, sample_rate_hz
        self._partial = path.with_name(path.name + ".partial")
        self._container = open_container(manner.form, sample_rate_hz, whole=True)
        self._delivery = Delivery(sample_rate_hz, speed=manner.speed, loudness_lufs=None)
        self._held: list[Samples] = []
        try:
            self._file = self._partial.open("wb")
        except OSError as error:
            raise self._failed(error) from error

    def push(self, samples: Samples) -> None:
        """Take the next samples ``[N]``.

        Raises:
            CommandFailed: They cannot be written.
        """
        if self._manner.loudness_lufs is None:
            self._write(self._container.push(self._delivery.push(samples)))
        else:
            self._held.append(samples)

    def close(self) -> None:
        """Put the file in its place.

        Raises:
            CommandFailed: It cannot be written.
        """
        self._write(self._container.push(self._rest()) + self._container.close())
        try:
            if self._manner.form == "wav":
                length = self._file.tell()
                for place, before in _LENGTHS:
                    self._file.seek(place)
                    told = min(length - before, _MOST_BYTES)
                    self._file.write(told.to_bytes(4, "little"))
            self._file.close()
            self._partial.replace(self._path)
        except OSError as error:
            raise self._failed(error) from error

    def abandon(self) -> None:
        """Leave nothing behind; after `close` there is nothing to leave."""
        self._file.close()
        self._partial.unlink(missing_ok=True)

    def _rest(self) -> Samples:
        """Return what is not in the container yet."""
        if self._manner.loudness_lufs is None:
            return self._delivery.close()
        return delivered(
            np.concatenate(self._held),
            self._rate_hz,
            speed=self._manner.speed,
            loudness_lufs=self._manner.loudness_lufs,
        )

    def _write(self, part: bytes) -> None:
        try:
            self._file.write(part)
        except OSError as error:
            raise self._failed(error) from error

    def _failed(self, error: OSError) -> CommandFailed:
        return CommandFailed(f"out: {self._path}: {error.strerror}")

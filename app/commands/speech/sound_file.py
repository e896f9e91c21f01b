"""A sound file that is written incrementally and appears when it is complete."""

from contextlib import suppress
from pathlib import Path
from typing import Final

import numpy as np

from app.audio.containers import open_container
from app.audio.rendering import Delivery, OutputOptions, deliver
from app.commands.errors import CommandFailed
from app.engine.job import Samples

_MOST_BYTES: Final = 0xFFFFFFFF  # of a WAV's length; players read longer files to the end
_LENGTHS: Final = ((4, 8), (40, 44))  # length fields of WAV: position, bytes before their content


class SoundFile:
    """Writes samples to a temporary file, which `close` moves to its place.

    The file equals a whole HTTP response. For a target loudness, which is measured on the whole
    speech, all samples are held in memory until `close`.
    """

    def __init__(self, path: Path, output: OutputOptions, sample_rate_hz: int) -> None:
        self._path, self._output, self._rate_hz = path, output, sample_rate_hz
        self._partial = path.with_name(path.name + ".partial")
        self._container = open_container(output.form, output.rate_hz(sample_rate_hz), whole=True)
        self._delivery = Delivery(output._replace(loudness_lufs=None), sample_rate_hz)
        self._held: list[Samples] = []
        try:
            self._file = self._partial.open("wb")
        except OSError as error:
            raise self._failed(error) from error

    def push(self, samples: Samples) -> None:
        """Write samples ``[N]``."""
        if self._output.loudness_lufs is None:
            self._write(self._container.push(self._delivery.push(samples)))
        else:
            self._held.append(samples)

    def close(self) -> None:
        """Finish the file and move it to its place."""
        self._write(self._container.push(self._rest()) + self._container.close())
        try:
            if self._output.form == "wav":
                length = self._file.tell()
                for place, before in _LENGTHS:
                    self._file.seek(place)
                    value = min(length - before, _MOST_BYTES)
                    self._file.write(value.to_bytes(4, "little"))
            self._file.close()
            self._partial.replace(self._path)
        except OSError as error:
            raise self._failed(error) from error

    def abandon(self) -> None:
        """Delete the temporary file; no-op after `close`."""
        with suppress(OSError):  # what is left in the buffer of a full disk: told already
            self._file.close()
        self._partial.unlink(missing_ok=True)

    def _rest(self) -> Samples:
        """Return the samples that are not in the container yet."""
        if self._output.loudness_lufs is None:
            return self._delivery.close()
        return deliver(np.concatenate(self._held), self._rate_hz, self._output)

    def _write(self, part: bytes) -> None:
        try:
            self._file.write(part)
        except OSError as error:
            raise self._failed(error) from error

    def _failed(self, error: OSError) -> CommandFailed:
        return CommandFailed(f"out: {self._path}: {error.strerror}")

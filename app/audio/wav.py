"""16 bit PCM and WAV."""

import struct
from typing import Final

import numpy as np
from numpy.typing import NDArray

from app.engine.job import Samples

_SAMPLE_BYTES: Final = 2
_FULL_SCALE: Final = 2**15
_UNKNOWN: Final = 0xFFFFFFFF
_HEAD_BYTES: Final = 44


def pcm(samples: Samples) -> bytes:
    """Return samples ``[N]`` in [-1, 1] as little-endian int16, clipped."""
    return int16(samples).astype("<i2").tobytes()


def wav_header(sample_rate_hz: int, data_bytes: int | None = None) -> bytes:
    """Return the header of a mono 16 bit WAV file, which `pcm` follows.

    Args:
        sample_rate_hz: Sample rate.
        data_bytes: Number of bytes that follow. None if unknown: both length fields are then
            0xFFFFFFFF, which players read as "until the stream ends".
    """
    data = _UNKNOWN if data_bytes is None else data_bytes
    riff_bytes = _UNKNOWN if data_bytes is None else data_bytes + _HEAD_BYTES - 8
    form = struct.pack("<4sI4s", b"RIFF", riff_bytes, b"WAVE")
    rate_bytes = sample_rate_hz * _SAMPLE_BYTES
    bits = 8 * _SAMPLE_BYTES
    shape = struct.pack(
        "<4sIHHIIHH", b"fmt ", 16, 1, 1, sample_rate_hz, rate_bytes, _SAMPLE_BYTES, bits
    )
    return form + shape + struct.pack("<4sI", b"data", data)


class WavFile:
    """A mono 16 bit WAV file with its length in the header; all bytes come from `close`."""

    def __init__(self, sample_rate_hz: int) -> None:
        """Open an empty file."""
        self._rate_hz = sample_rate_hz
        self._parts: list[bytes] = []

    def push(self, samples: Samples) -> bytes:
        """Append samples ``[N]`` in [-1, 1], clipped; return no bytes."""
        self._parts.append(pcm(samples))
        return b""

    def close(self) -> bytes:
        """Return the file."""
        head = wav_header(self._rate_hz, sum(map(len, self._parts)))
        return b"".join([head, *self._parts])


def int16(samples: Samples) -> NDArray[np.int16]:
    """Round samples ``[N]`` in [-1, 1] to 16 bits, clipped; used for all output."""
    rounded = np.rint(samples * _FULL_SCALE).clip(-_FULL_SCALE, _FULL_SCALE - 1)
    return np.asarray(rounded, np.int16)

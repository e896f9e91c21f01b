"""Samples to containers."""

import struct
from io import BytesIO
from typing import Final

import numpy as np
import soundfile
from numpy.typing import NDArray

from app.engine.job import Samples

_SAMPLE_BYTES: Final = 2
_FULL_SCALE: Final = 2**15
_UNKNOWN: Final = 0xFFFFFFFF


def pcm(samples: Samples) -> bytes:
    """Return samples ``[N]`` in [-1, 1] as little-endian int16; what lies outside is clipped."""
    return int16(samples).astype("<i2").tobytes()


def wav_header(sample_rate_hz: int) -> bytes:
    """Return the head of a mono WAV of 16 bits whose length is not known yet.

    Both lengths are 0xFFFFFFFF, which players take for "until the stream ends". `pcm` follows.
    """
    form = struct.pack("<4sI4s", b"RIFF", _UNKNOWN, b"WAVE")
    rate_bytes = sample_rate_hz * _SAMPLE_BYTES
    bits = 8 * _SAMPLE_BYTES
    shape = struct.pack(
        "<4sIHHIIHH", b"fmt ", 16, 1, 1, sample_rate_hz, rate_bytes, _SAMPLE_BYTES, bits
    )
    return form + shape + struct.pack("<4sI", b"data", _UNKNOWN)


class WavFile:
    """A WAV file of 16 bits, mono, whose head tells its length; whole once it is closed."""

    def __init__(self, sample_rate_hz: int) -> None:
        """Begin with no sound."""
        self._bytes = BytesIO()
        self._file = soundfile.SoundFile(
            self._bytes, "w", sample_rate_hz, 1, subtype="PCM_16", format="WAV"
        )

    def push(self, samples: Samples) -> bytes:
        """Take samples ``[N]`` in [-1, 1], clipped outside; nothing is given before the end."""
        self._file.write(int16(samples))
        return b""

    def close(self) -> bytes:
        """Return the file."""
        self._file.close()
        return self._bytes.getvalue()


def int16(samples: Samples) -> NDArray[np.int16]:
    """Round samples ``[N]`` to 16 bits: the same for all that is sent, streamed or whole."""
    rounded = np.rint(samples * _FULL_SCALE).clip(-_FULL_SCALE, _FULL_SCALE - 1)
    return np.asarray(rounded, np.int16)

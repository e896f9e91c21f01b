"""The audio formats, WAV and PCM among them: samples to a file, whole or incrementally."""

import struct
from collections.abc import Mapping
from typing import Final, Protocol

from app.audio.encoder import EncoderSettings, LibavEncoder, int16
from app.audio.formats import AudioFormat
from app.engine.job import Samples

_SAMPLE_BYTES: Final = 2
_UNKNOWN: Final = 0xFFFFFFFF
_HEAD_BYTES: Final = 44


def pcm(samples: Samples) -> bytes:
    """Return samples ``[N]`` in [-1, 1] as little-endian int16, clipped."""
    return int16(samples).astype("<i2").tobytes()


def wav_header(sample_rate_hz: int, data_bytes: int | None = None) -> bytes:
    """Return the header of a mono 16 bit WAV file, which `pcm` follows.

    Args:
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


_ENCODERS: Final[Mapping[AudioFormat, EncoderSettings]] = {
    "mp3": EncoderSettings("mp3", "libmp3lame", 128_000),
    "opus": EncoderSettings("ogg", "libopus", 64_000),
    "aac": EncoderSettings("adts", "aac", 96_000, least=1025),
    "flac": EncoderSettings("flac", "flac", None),
    "ulaw": EncoderSettings("mulaw", "pcm_mulaw", None, least=0),
    "alaw": EncoderSettings("alaw", "pcm_alaw", None, least=0),
}


class Container(Protocol):
    """An audio file that is written incrementally; bytes once returned are final."""

    def push(self, samples: Samples) -> bytes:
        """Encode samples ``[N]`` in [-1, 1] and return the bytes that are complete, often none."""

    def close(self) -> bytes:
        """Return the remaining bytes; nothing may be pushed after."""


def open_container(form: AudioFormat, sample_rate_hz: int, *, whole: bool = False) -> Container:
    """Return an empty audio file.

    Args:
        form: Format of the file.
        sample_rate_hz: Sample rate; mono.
        whole: Whether the header tells the length, where the format has a field for it. The bytes
            of such a format are then all returned by `close`.
    """
    if form in _ENCODERS:
        return LibavEncoder(_ENCODERS[form], sample_rate_hz, whole=whole)
    if form == "wav" and whole:
        return WavFile(sample_rate_hz)
    return _RawFile(wav_header(sample_rate_hz) if form == "wav" else b"")


def encode_file(samples: Samples, form: AudioFormat, sample_rate_hz: int) -> bytes:
    """Return a complete audio file, with its length in the header if the format has a field.

    Args:
        samples: ``[N]`` in [-1, 1]; values outside are clipped.
        form: Format of the file.
        sample_rate_hz: Sample rate; mono.
    """
    file = open_container(form, sample_rate_hz, whole=True)
    return file.push(samples) + file.close()


class _RawFile:
    """16 bit samples after a header."""

    def __init__(self, head: bytes) -> None:
        self._head = head

    def push(self, samples: Samples) -> bytes:
        head, self._head = self._head, b""
        return head + pcm(samples)

    def close(self) -> bytes:
        head, self._head = self._head, b""
        return head

"""The six audio formats: encode samples to a file, whole or incrementally."""

from collections.abc import Mapping
from typing import Final, Protocol

from app.audio import wav as audio
from app.audio.encoder import EncoderSettings, LibavEncoder
from app.audio.formats import AudioFormat
from app.engine.job import Samples

_ENCODERS: Final[Mapping[AudioFormat, EncoderSettings]] = {
    "mp3": EncoderSettings("mp3", "libmp3lame", 128_000),
    "opus": EncoderSettings("ogg", "libopus", 64_000),
    "aac": EncoderSettings("adts", "aac", 96_000, least=1025),
    "flac": EncoderSettings("flac", "flac", None),
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
        return audio.WavFile(sample_rate_hz)
    return _RawFile(audio.wav_header(sample_rate_hz) if form == "wav" else b"")


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
        return head + audio.pcm(samples)

    def close(self) -> bytes:
        head, self._head = self._head, b""
        return head

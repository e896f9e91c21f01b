"""The six formats: samples to the bytes of one file, whole or as they come."""

from collections.abc import Mapping
from typing import Final, Protocol

from app.audio import wav as audio
from app.audio.encoder import Coding, Encoder
from app.audio.formats import AudioFormat
from app.engine.job import Samples

_CODINGS: Final[Mapping[AudioFormat, Coding]] = {
    "mp3": Coding("mp3", "libmp3lame", 128_000),
    "opus": Coding("ogg", "libopus", 64_000),
    "aac": Coding("adts", "aac", 96_000, least=1025),
    "flac": Coding("flac", "flac", None),
}


class Container(Protocol):
    """A file that is written while its sound is made; whatever was given before stays valid."""

    def push(self, samples: Samples) -> bytes:
        """Take samples ``[N]`` in [-1, 1] and return the bytes that are certain; often none."""

    def close(self) -> bytes:
        """Return what is left; nothing may be pushed after."""


def open_container(form: AudioFormat, sample_rate_hz: int, *, whole: bool = False) -> Container:
    """Return an empty file of unknown length.

    Args:
        form: What it is to be.
        sample_rate_hz: Samples in a second; mono.
        whole: Whether it comes as a whole when it is closed, its head telling its length where
            the format has a place for it; what has no head comes as it is pushed.
    """
    if form in _CODINGS:
        return Encoder(_CODINGS[form], sample_rate_hz, whole=whole)
    if form == "wav" and whole:
        return audio.WavFile(sample_rate_hz)
    return _Plain(audio.wav_header(sample_rate_hz) if form == "wav" else b"")


def contained(samples: Samples, form: AudioFormat, sample_rate_hz: int) -> bytes:
    """Return a whole file, whose head tells its length where the format has a place for it.

    Args:
        samples: ``[N]`` in [-1, 1]; what lies outside is clipped.
        form: What it is to be.
        sample_rate_hz: Samples in a second; mono.
    """
    file = open_container(form, sample_rate_hz, whole=True)
    return file.push(samples) + file.close()


class _Plain:
    """Samples of 16 bits after a head."""

    def __init__(self, head: bytes) -> None:
        self._head = head

    def push(self, samples: Samples) -> bytes:
        head, self._head = self._head, b""
        return head + audio.pcm(samples)

    def close(self) -> bytes:
        head, self._head = self._head, b""
        return head

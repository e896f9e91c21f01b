"""Decoding with libav: MP3, and what phones, browsers and editors write."""

import io
from collections.abc import Iterator
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from av.audio.frame import AudioFrame


class LibavError(ValueError):
    """The file cannot be read."""


def libav_format(content: bytes) -> str | None:
    """Return libav's name of a file's format, by its first bytes; None if it is not read here."""
    if content[4:8] == b"ftyp":
        return "mov"  # M4A, MP4, 3GP
    if content[:4] == b"\x1aE\xdf\xa3":
        return "matroska"  # WebM
    if content[:4] == b"caff":
        return "caf"
    if content[:4] == b"FORM" and content[8:12] in {b"AIFF", b"AIFC"}:
        return "aiff"
    if content[:5] == b"#!AMR":
        return "amr"
    if content[:1] == b"\xff" and content[1:2] and content[1] & 0xF6 == 0xF0:
        return "aac"  # ADTS: an MPEG sync word of layer 0
    return "mp3" if content[:3] == b"ID3" or _has_mpeg_sync(content) else None


def _has_mpeg_sync(content: bytes) -> bool:
    return content[:1] == b"\xff" and content[1:2] >= b"\xe0"


class LibavFile:
    """A file of audio, decoded from any second on; damaged frames are skipped, as players do."""

    def __init__(self, content: bytes, form: str) -> None:
        import av

        try:
            self._file = av.open(io.BytesIO(content), "r", format=form)
            name = self._file.streams.audio[0].codec_context.name
            if form == "mp3" and name not in {"mp3", "mp3float"}:
                raise LibavError("it is not MP3")
            self._decoded = self._frames()
            # What a stream says of itself is not always what is decoded: HE-AAC has twice the rate.
            self._first = next(self._decoded)
        except (av.FFmpegError, IndexError, ValueError, StopIteration) as error:
            raise LibavError(str(error)) from error
        self.rate_hz, self.channels = self._first.sample_rate, self._first.layout.nb_channels

    def blocks(self) -> Iterator[NDArray[np.float32]]:
        """Yield the samples, mono, from the beginning on.

        Raises:
            LibavError: The rate or the channels change, or the file cannot be read.
        """
        import av

        to_floats = av.AudioResampler("fltp")
        try:
            for frame in chain([self._first], self._decoded):
                if (frame.sample_rate, frame.layout.nb_channels) != (self.rate_hz, self.channels):
                    raise LibavError("its rate or its channels change")
                for one in to_floats.resample(frame):
                    yield one.to_ndarray().mean(axis=0, dtype=np.float32)
        except (av.FFmpegError, ValueError) as error:
            raise LibavError(str(error)) from error
        finally:
            self._file.close()

    def _frames(self) -> "Iterator[AudioFrame]":
        import av

        for packet in self._file.demux(self._file.streams.audio[0]):
            try:
                yield from packet.decode()
            except av.InvalidDataError:
                continue

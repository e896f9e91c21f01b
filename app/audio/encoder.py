"""Samples to the bytes of one compressed file, by libav."""

from fractions import Fraction
from io import BytesIO
from typing import Final, NamedTuple

import av
import numpy as np
from av.audio.stream import AudioStream

from app.audio.wav import int16
from app.engine.job import Samples


class Coding(NamedTuple):
    """What libav makes a file with.

    Args:
        muxer: Its name for the container.
        codec: Its name for what is inside.
        bit_rate: Bits a second; None where the codec is lossless.
        least: Samples a file has at least, silence being added. Of none, libav writes no file; and
            AAC in ADTS has no head, so that a reader knows it by three frames in a row.
    """

    muxer: str
    codec: str
    bit_rate: int | None
    least: int = 1


# Opus goes into Ogg: a page holds 20 ms, so that little waits for its page to be full. Its encoder
# takes our 24 kHz as they are; its positions count at 48 kHz, as the format has it.
_MUXER_OPTIONS: Final = {
    "flac": {"metadata_header_padding": "0"},
    "mp3": {"id3v2_version": "0"},
    "ogg": {"page_duration": "20000"},
}


class _Pipe:
    """A file that cannot seek, so that what is written once stays as it is."""

    def __init__(self) -> None:
        self._written = bytearray()

    def write(self, part: bytes) -> int:
        self._written += part
        return len(part)

    def take(self) -> bytes:
        """Return what was written since the last call."""
        taken = bytes(self._written)
        self._written.clear()
        return taken


class Encoder:
    """Writes one file. For one thread at a time; it takes milliseconds, so not the event loop's."""

    def __init__(self, coding: Coding, sample_rate_hz: int, *, whole: bool) -> None:
        """Begin a file.

        Args:
            coding: What it is to be.
            sample_rate_hz: Of what is pushed; mono.
            whole: Whether its head may tell what only its end knows. All bytes then come from
                `close`: the length of FLAC, and what of MP3 is padding at either end.
        """
        self._file = BytesIO() if whole else _Pipe()
        options = {"fflags": "+bitexact", "flush_packets": "1"}
        options |= _MUXER_OPTIONS.get(coding.muxer, {})
        if coding.muxer == "mp3" and not whole:
            options["write_xing"] = "0"  # that frame would tell the length
        self._muxer = av.open(self._file, "w", format=coding.muxer, container_options=options)
        stream = self._muxer.add_stream(coding.codec, rate=sample_rate_hz)
        assert isinstance(stream, AudioStream)
        stream.codec_context.layout = "mono"
        if coding.bit_rate is not None:
            stream.codec_context.bit_rate = coding.bit_rate
        self._coding, self._stream = coding, stream
        self._rate_hz, self._samples = sample_rate_hz, 0

    def push(self, samples: Samples) -> bytes:
        """Take samples ``[N]`` and return what is written by now."""
        if len(samples):
            frame = av.AudioFrame.from_ndarray(int16(samples)[None], format="s16", layout="mono")
            frame.sample_rate = self._rate_hz
            frame.pts, frame.time_base = self._samples, Fraction(1, self._rate_hz)
            self._samples += len(samples)
            self._muxer.mux(self._stream.encode(frame))
        return self._file.take() if isinstance(self._file, _Pipe) else b""

    def close(self) -> bytes:
        """End the file and return the rest of it."""
        lacking = self._coding.least - self._samples
        filled = self.push(np.zeros(max(lacking, 0), np.float32))
        self._muxer.mux(self._stream.encode(None))
        self._muxer.close()
        ended = self._file.take() if isinstance(self._file, _Pipe) else self._file.getvalue()
        return filled + ended

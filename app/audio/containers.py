"""Files of sound: samples to bytes, as they come. All but WAV and PCM are encoded by libav."""

import struct
from collections.abc import Mapping
from fractions import Fraction
from io import BytesIO
from typing import Final, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from app.audio.formats import AudioFormat
from app.engine.results import Samples

_FULL_SCALE: Final = 2**15

_SAMPLE_BYTES: Final = 2

_UNKNOWN: Final = 0xFFFFFFFF

_HEAD_BYTES: Final = 44


def int16(samples: Samples) -> NDArray[np.int16]:
    """Round samples ``[N]`` in [-1, 1] to 16 bits, clipped; used for all output."""
    rounded = np.rint(samples * _FULL_SCALE).clip(-_FULL_SCALE, _FULL_SCALE - 1)
    return np.asarray(rounded, np.int16)


def pcm(samples: Samples) -> bytes:
    """Return samples ``[N]`` in [-1, 1] as little-endian int16, clipped."""
    return int16(samples).astype("<i2").tobytes()


def wav_header(sample_rate_hz: int, data_bytes: int | None = None) -> bytes:
    """Return the header of a mono 16 bit WAV file, which so many bytes of `pcm` follow.

    If that is unknown both lengths are 0xFFFFFFFF, which players read as "until the stream ends".
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


class _WavFile:
    """A mono 16 bit WAV file with its length in the header; all bytes come from `close`."""

    def __init__(self, sample_rate_hz: int) -> None:
        self._rate_hz = sample_rate_hz
        self._parts: list[bytes] = []

    def push(self, samples: Samples) -> bytes:
        self._parts.append(pcm(samples))
        return b""

    def close(self) -> bytes:
        head = wav_header(self._rate_hz, sum(map(len, self._parts)))
        return b"".join([head, *self._parts])


class _EncoderSettings(NamedTuple):
    """libav's names of a format's container and codec, bits per second, least number of samples.

    Shorter files are padded with silence: libav writes no file without samples, and a reader
    recognises headerless AAC in ADTS by three frames in a row. ``options`` are the container's.
    """

    muxer: str
    codec: str
    bit_rate: int | None
    least: int = 1
    options: Mapping[str, str] = {}


class _WriteBuffer:
    """A file object without seek, so that written bytes are final."""

    def __init__(self) -> None:
        self._written = bytearray()

    def write(self, part: bytes) -> int:
        self._written += part
        return len(part)

    def take(self) -> bytes:
        taken = bytes(self._written)
        self._written.clear()
        return taken


class _LibavEncoder:
    """Encodes one audio file. Not thread-safe; too slow for the event loop.

    Of a whole one `close` returns all bytes, so that the header can hold what is known at the end:
    the length of FLAC, the padding of MP3.
    """

    def __init__(self, settings: _EncoderSettings, sample_rate_hz: int, *, whole: bool) -> None:
        # So that WAV and PCM need no libav, nor does a start wait for it.
        import av
        from av.audio.stream import AudioStream

        self._file = BytesIO() if whole else _WriteBuffer()
        options = {"fflags": "+bitexact", "flush_packets": "1"}
        options |= settings.options
        if settings.muxer == "mp3" and not whole:
            options["write_xing"] = "0"  # that frame holds the length
        self._muxer = av.open(self._file, "w", format=settings.muxer, container_options=options)
        stream = self._muxer.add_stream(settings.codec, rate=sample_rate_hz)
        assert isinstance(stream, AudioStream)
        stream.codec_context.layout = "mono"
        if settings.bit_rate is not None:
            stream.codec_context.bit_rate = settings.bit_rate
        self._settings = settings
        self._stream = stream
        self._rate_hz = sample_rate_hz
        self._samples = 0

    def push(self, samples: Samples) -> bytes:
        if len(samples):
            from av import AudioFrame

            frame = AudioFrame.from_ndarray(int16(samples)[None], format="s16", layout="mono")
            frame.sample_rate = self._rate_hz
            frame.pts = self._samples
            frame.time_base = Fraction(1, self._rate_hz)
            self._samples += len(samples)
            self._muxer.mux(self._stream.encode(frame))
        return self._file.take() if isinstance(self._file, _WriteBuffer) else b""

    def close(self) -> bytes:
        missing = self._settings.least - self._samples
        padded = self.push(np.zeros(max(missing, 0), np.float32))
        self._muxer.mux(self._stream.encode(None))
        self._muxer.close()
        rest = self._file.take() if isinstance(self._file, _WriteBuffer) else self._file.getvalue()
        return padded + rest


_ENCODERS: Final[Mapping[AudioFormat, _EncoderSettings]] = {
    "mp3": _EncoderSettings("mp3", "libmp3lame", 128_000, options={"id3v2_version": "0"}),
    # Ogg pages of 20 ms, so that Opus is streamed with little delay. The encoder takes 24 kHz
    # directly; positions count at 48 kHz, as the format demands.
    "opus": _EncoderSettings("ogg", "libopus", 64_000, options={"page_duration": "20000"}),
    "aac": _EncoderSettings("adts", "aac", 96_000, least=1025),
    "flac": _EncoderSettings("flac", "flac", None, options={"metadata_header_padding": "0"}),
    "ulaw": _EncoderSettings("mulaw", "pcm_mulaw", None, least=0),
    "alaw": _EncoderSettings("alaw", "pcm_alaw", None, least=0),
}


class Container(Protocol):
    """An audio file that is written incrementally; bytes once returned are final."""

    def push(self, samples: Samples) -> bytes:
        """Encode samples ``[N]`` in [-1, 1] and return the bytes that are complete, often none."""

    def close(self) -> bytes:
        """Return the remaining bytes; nothing may be pushed after."""


def open_container(form: AudioFormat, sample_rate_hz: int, *, whole: bool = False) -> Container:
    """Return an empty audio file, mono.

    If ``whole``, the header has the length, so all bytes come from `close`; but for formats whose
    header has no field for it.
    """
    if form in _ENCODERS:
        return _LibavEncoder(_ENCODERS[form], sample_rate_hz, whole=whole)
    if form == "wav" and whole:
        return _WavFile(sample_rate_hz)
    return _RawFile(wav_header(sample_rate_hz) if form == "wav" else b"")


def encode_file(samples: Samples, form: AudioFormat, sample_rate_hz: int) -> bytes:
    """Return a complete audio file of samples ``[N]`` in [-1, 1], clipped, as `open_container`."""
    file = open_container(form, sample_rate_hz, whole=True)
    return file.push(samples) + file.close()


class _RawFile:
    def __init__(self, head: bytes) -> None:
        self._head = head

    def push(self, samples: Samples) -> bytes:
        head = self._head
        self._head = b""
        return head + pcm(samples)

    def close(self) -> bytes:
        head = self._head
        self._head = b""
        return head

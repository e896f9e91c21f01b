"""Render a speech as requested: speed, loudness and sample rate, then the bytes of one file.

Formats are encoded by libav, but for WAV and PCM. In `RenderPool` every client has its own queue,
and the queues take turns: a step waits for the running ones and for at most one of each other
client. Cancelled steps are not started.
"""

import asyncio
import os
import struct
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from fractions import Fraction
from functools import partial
from io import BytesIO
from typing import Final, NamedTuple, Protocol, TypeVar
from weakref import WeakValueDictionary

import numpy as np
from numpy.typing import NDArray

from app.audio.formats import DEFAULT_RATES, AudioFormat
from app.audio.loudness import Leveller, Limiter, apply_gain, gain_db
from app.engine.core import SampleRate
from app.engine.join.tempo import Tempo
from app.engine.results import Samples
from models.voices.libav import FilterGraph

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
    recognises headerless AAC in ADTS by three frames in a row.
    """

    muxer: str
    codec: str
    bit_rate: int | None
    least: int = 1


# Ogg pages of 20 ms, so that Opus is streamed with little delay. The encoder
# takes 24 kHz directly; positions count at 48 kHz, as the format demands.
_MUXER_OPTIONS: Final = {
    "flac": {"metadata_header_padding": "0"},
    "mp3": {"id3v2_version": "0"},
    "ogg": {"page_duration": "20000"},
}


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
        options |= _MUXER_OPTIONS.get(settings.muxer, {})
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
    "mp3": _EncoderSettings("mp3", "libmp3lame", 128_000),
    "opus": _EncoderSettings("ogg", "libopus", 64_000),
    "aac": _EncoderSettings("adts", "aac", 96_000, least=1025),
    "flac": _EncoderSettings("flac", "flac", None),
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
    """Return an empty audio file, mono; of a whole one the header has the length.

    The bytes of a format with a field for it are then all returned by `close`.
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


class FileOptions(NamedTuple):
    """Format, speed, loudness and sample rate of an audio file; without one it is `rate_hz`."""

    form: AudioFormat
    speed: float = 1.0
    loudness_lufs: float | None = None
    sample_rate: SampleRate | None = None

    def rate_hz(self, model_rate_hz: int) -> int:
        """Return the sample rate of the file: as asked for, else the format's, or the model's."""
        return self.sample_rate or DEFAULT_RATES.get(self.form, model_rate_hz)


class _AudioFilter(Protocol):
    """Processes samples incrementally; output may lag behind input."""

    def push(self, samples: Samples) -> Samples: ...

    def close(self) -> Samples: ...


class _WholeLeveller:
    """Brings a whole speech to a loudness, all of it by one gain: held until it is measured."""

    def __init__(self, target_lufs: float, sample_rate_hz: int) -> None:
        self._target_lufs = target_lufs
        self._rate_hz = sample_rate_hz
        self._held = [np.zeros(0, np.float32)]

    def push(self, samples: Samples) -> Samples:
        self._held.append(samples)
        return samples[:0]

    def close(self) -> Samples:
        held = np.concatenate(self._held)
        self._held.clear()
        return apply_gain(held, gain_db(held, self._rate_hz, self._target_lufs) or 0.0)


class Delivery:
    """Applies speed, loudness and sample rate incrementally; by default samples are unchanged.

    Not thread-safe. Takes milliseconds, so do not call it on the event loop. The loudness of a
    ``whole`` speech is measured over all of it, which `close` then yields.
    """

    def __init__(
        self,
        output: FileOptions,
        sample_rate_hz: int,
        likely_lufs: float | None = None,
        *,
        whole: bool = False,
    ) -> None:
        self._rate_hz = sample_rate_hz
        self._stages: list[_AudioFilter] = []
        if output.speed != 1:
            self._stages.append(Tempo(output.speed, sample_rate_hz))
        if (target_lufs := output.loudness_lufs) is not None:
            self._stages.append(
                _WholeLeveller(target_lufs, sample_rate_hz)
                if whole
                else Leveller(target_lufs, sample_rate_hz, likely_lufs)
            )
            self._stages.append(Limiter(sample_rate_hz))
        if (output_hz := output.rate_hz(sample_rate_hz)) != sample_rate_hz:
            # libav's converter of sample rates holds 2 ms back at most.
            self._stages.append(FilterGraph([("aresample", f"{output_hz}")], sample_rate_hz))

    def push(self, samples: Samples) -> Samples:
        """Filter samples ``[n]`` and return those ``[m]`` that are complete."""
        return self._through(self._stages, samples)

    def close(self) -> Iterator[Samples]:
        """Yield the remaining samples ``[m]`` in portions; nothing may be pushed after."""
        for number, stage in enumerate(self._stages, start=1):
            for portion in split_portions(stage.close(), self._rate_hz):
                yield self._through(self._stages[number:], portion)

    def _through(self, stages: Sequence[_AudioFilter], samples: Samples) -> Samples:
        for stage in stages:
            samples = stage.push(samples)
        return samples


PORTION_S: Final = 2.0  # rendered in one step: milliseconds of work, tens at a quarter's speed


def split_portions(samples: Samples, sample_rate_hz: int) -> Iterator[Samples]:
    """Yield samples ``[N]`` in portions of at most `PORTION_S`; at least one."""
    most = round(PORTION_S * sample_rate_hz)
    for start in range(0, max(1, len(samples)), most):
        yield samples[start : start + most]


_T = TypeVar("_T")


class RenderPool:
    """Runs short functions in threads, one per core and at most 4; from the event loop only."""

    def __init__(self, threads: int | None = None) -> None:
        count = threads or min(4, os.cpu_count() or 1)
        self._threads = ThreadPoolExecutor(count, thread_name_prefix="speech-audio")
        self._free = asyncio.Semaphore(count)
        # Of each client one step at a time waits for a thread; whoever came first is next.
        self._turns = WeakValueDictionary[str, asyncio.Lock]()

    async def run(self, client: str, work: Callable[[], _T]) -> _T:
        """Run a function of at most some 100 ms in a thread, when it is its client's turn.

        Steps on one object must not run at once: await each before the next.
        """
        turn = self._turns.setdefault(client, asyncio.Lock())
        async with turn:
            await self._free.acquire()
        loop = asyncio.get_running_loop()

        def end(_: "Future[_T]") -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(self._free.release)

        step = self._threads.submit(work)
        step.add_done_callback(end)
        return await asyncio.wrap_future(step)

    def close(self) -> None:
        """Drop all steps that have not begun."""
        self._threads.shutdown(wait=False, cancel_futures=True)


class Renderer:
    """Writes one audio file, whole or streamed: a portion of samples is a step in the pool.

    Where a step takes no time it is made at once. Arguments as of `Delivery`; each call is to be
    awaited before the next.
    """

    def __init__(
        self,
        steps: tuple[RenderPool, str],
        output: FileOptions,
        sample_rate_hz: int,
        likely_lufs: float | None = None,
        *,
        whole: bool = False,
    ) -> None:
        self._pool, self._client = steps
        self._model_rate_hz = sample_rate_hz
        self._rate_hz = output.rate_hz(sample_rate_hz)
        self._delivery = Delivery(output, sample_rate_hz, likely_lufs, whole=whole)
        self._container = open_container(output.form, self._rate_hz, whole=whole)
        plain = output.speed == 1 and output.loudness_lufs is None
        same = plain and self._rate_hz == sample_rate_hz
        self._instant = same and output.form in {"wav", "pcm"} and not whole
        self._samples = 0

    @property
    def audio_s(self) -> float:
        """Seconds of sound written so far."""
        return self._samples / self._rate_hz

    async def push(self, samples: Samples) -> AsyncIterator[bytes]:
        """Render samples ``[N]``; yield the bytes that are complete after each portion."""
        for portion in split_portions(samples, self._model_rate_hz):
            yield await self._run(partial(self._pushed, portion))

    async def close(self) -> bytes:
        """Return the remaining bytes; nothing may be pushed after."""
        left = map(self._written, self._delivery.close())
        parts = list[bytes]()
        while (part := await self._run(partial(next, left, None))) is not None:
            parts.append(part)
        return b"".join([*parts, await self._run(self._container.close)])

    async def _run(self, step: Callable[[], _T]) -> _T:
        return step() if self._instant else await self._pool.run(self._client, step)

    def _pushed(self, portion: Samples) -> bytes:
        return self._written(self._delivery.push(portion))

    def _written(self, samples: Samples) -> bytes:
        self._samples += len(samples)
        return self._container.push(samples)

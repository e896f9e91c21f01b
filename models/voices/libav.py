"""What libav does: it decodes recordings, and filters sound."""

import io
import re
from collections.abc import Iterator, Sequence
from fractions import Fraction
from itertools import chain
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from av.audio.frame import AudioFrame


Samples = NDArray[np.float32]
"""``[N]``, mono."""


class LibavError(ValueError):
    """The file cannot be read."""


_FIRST_BYTES: Final = {
    "wav": rb"RIFF.{4}WAVE",
    "flac": rb"fLaC",
    "ogg": rb"OggS",
    "mov": rb".{4}ftyp",  # M4A, MP4, 3GP
    "matroska": rb"\x1aE\xdf\xa3",  # WebM
    "caf": rb"caff",
    "aiff": rb"FORM.{4}AIF[FC]",
    "amr": rb"#!AMR",
    "aac": rb"\xff[\xf0\xf1\xf8\xf9]",  # ADTS: an MPEG sync word of layer 0
    "mp3": rb"ID3|\xff[\xe0-\xff]",
}
"""Of the formats that are read, by their names in libav; the first that fits is taken."""


def libav_format(content: bytes) -> str | None:
    """Return libav's name of a file's format, by its first bytes; None if it is not read here."""
    fits = (name for name, bytes_ in _FIRST_BYTES.items() if re.match(bytes_, content, re.DOTALL))
    return next(fits, None)


class LibavFile:
    """A file of audio, decoded from any second on; damaged frames are skipped, as players do."""

    def __init__(self, content: bytes, form: str) -> None:
        import av

        try:
            self._file = av.open(io.BytesIO(content), "r", format=form)
            context = self._file.streams.audio[0].codec_context
            if context is None:
                raise ValueError("its codec is unknown")
            self.codec = context.name  # as libav calls it
            self._decoded = self._frames()
            # What a stream says of itself is not always what is decoded: HE-AAC has twice the rate.
            self._first = next(self._decoded)
        except (av.FFmpegError, IndexError, ValueError, StopIteration) as error:
            raise LibavError(str(error)) from error
        self.rate_hz, self.channels = self._first.sample_rate, self._first.layout.nb_channels

    def blocks(self) -> Iterator[Samples]:
        """Yield the samples, mono, from the beginning on.

        Raises LibavError if the rate or the channels change, or the file cannot be read.
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


class FilterGraph:
    """A chain of libav's audio filters, for mono samples that come in parts; output lags behind."""

    def __init__(self, filters: Sequence[tuple[str, str]], sample_rate_hz: int) -> None:
        from av.filter import Graph

        self._graph = Graph()
        self._graph.threads = 1  # 0 would start one per core, which these filters do not use
        self._rate_hz, self._samples = sample_rate_hz, 0
        self._tick = Fraction(1, sample_rate_hz)
        source = self._graph.add_abuffer(
            format="flt", sample_rate=sample_rate_hz, layout="mono", time_base=self._tick
        )
        nodes = [source, *(self._graph.add(name, arguments) for name, arguments in filters)]
        nodes.append(self._graph.add("aformat", "sample_fmts=flt:channel_layouts=mono"))
        nodes.append(self._graph.add("abuffersink"))
        self._graph.link_nodes(*nodes).configure()

    def frames(self, samples: Samples | None) -> "Iterator[AudioFrame]":
        """Filter samples, None at their end; yield the frames that are complete."""
        import av

        if samples is None:
            self._graph.push(None)
        elif len(samples):
            flat = np.ascontiguousarray(samples, np.float32)[None]
            frame = av.AudioFrame.from_ndarray(flat, format="flt", layout="mono")
            frame.sample_rate = self._rate_hz
            frame.pts, frame.time_base = self._samples, self._tick
            self._samples += len(samples)
            self._graph.push(frame)
        while True:
            try:
                filtered = self._graph.pull()
            except (av.error.BlockingIOError, av.error.EOFError):
                return
            assert isinstance(filtered, av.AudioFrame)
            yield filtered

    def push(self, samples: Samples | None) -> Samples:
        """Filter samples ``[n]``, None at their end; return those ``[m]`` that are complete."""
        parts = [frame.to_ndarray()[0] for frame in self.frames(samples)]
        return np.concatenate([np.zeros(0, np.float32), *parts])

    def close(self) -> Samples:
        """Return the remaining samples ``[m]``; nothing may be pushed after."""
        return self.push(None)

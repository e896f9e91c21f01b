"""Audio files of many kinds, told apart by their first bytes and decoded by libav.

A file is a stranger's: its header, its index and its packets may say anything. So only the decoders
of `CODECS` are opened, never one of pictures or video, and what is decoded is counted. What libav
allocates for an index is bounded by the process alone: see `app.engine.recordings`.
"""

import io
import re
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from models.voices.lengths import lacks_index, lacks_last_page, stated_share, states_length

if TYPE_CHECKING:
    from av.audio.frame import AudioFrame
    from av.audio.stream import AudioStream
    from av.container import InputContainer
    from av.stream import Stream

Channels = NDArray[np.float32]
"""``[C, n]``: samples of each channel."""

CODECS: Final = frozenset((
    *("aac", "aac_latm", "ac3", "alac", "amrnb", "amrwb", "eac3", "flac", "gsm", "gsm_ms"),
    *("mp2", "mp2float", "mp3", "mp3float", "opus", "vorbis"),
    *("wmalossless", "wmapro", "wmav1", "wmav2", "wmavoice"),
    *("adpcm_ima_qt", "adpcm_ima_wav", "adpcm_ms", "adpcm_yamaha", "g722", "g726", "g726le"),
    *("pcm_alaw", "pcm_bluray", "pcm_mulaw", "pcm_s8", "pcm_u8"),
    *(f"pcm_{sign}{bits}{end}e" for sign in "su" for bits in (16, 24, 32) for end in "lb"),
    *(f"pcm_f{bits}{end}e" for bits in (32, 64) for end in "lb"),
))  # fmt: skip
"""Names of libav's decoders that may be opened."""

MOST_TRACKS = 4
MOST_CHANNELS = 8
MOST_PACKETS: Final = 100_000
"""Packets and frames that are looked at: 10 minutes of the usual ones are half as many."""

_LIBAV_TRACKS = 32  # beyond that a file is not even opened; pictures count
_MOST_DAMAGED = 1000  # packets, if they are also most of all
_BLOCK = 16_384  # samples of a channel
_NO_INDEX = "the file is cut: its index, which is at its end, is missing"
_ID3 = re.compile(rb"ID3[\x02-\x04].(.)([\x00-\x7f]{4})", re.DOTALL)
_MOST_TAGS = 8

_FIRST_BYTES: Final = {
    "wav": rb"(RIFF|RIFX|RF64|BW64).{4}WAVE",
    "w64": rb"riff\x2e\x91\xcf\x11",
    "flac": rb"fLaC",
    "ogg": rb"OggS",
    "mov": rb".{4}(ftyp|moov|mdat|wide|free|skip)",  # M4A, MP4, 3GP, QuickTime
    "matroska": rb"\x1aE\xdf\xa3",  # WebM
    "asf": rb"\x30\x26\xb2\x75\x8e\x66\xcf\x11",  # WMA
    "caf": rb"caff",
    "aiff": rb"FORM.{4}AIF[FC]",
    "au": rb"\.snd",
    "amr": rb"#!AMR",
    "mpegts": rb"(\x47.{187}){3}|.{4}(\x47.{191}){3}",  # of broadcasts, and of cameras
    "aac": rb"\xff[\xf0\xf1\xf8\xf9]",  # ADTS: an MPEG sync word of layer 0
    "mp3": rb"\xff[\xe0-\xff]",
}
"""Of the formats that are read, by their names in libav; the first that fits is taken."""


class ContainerError(ValueError):
    """The file cannot be read; the message says why."""


def without_tags(content: bytes) -> tuple[memoryview, bool]:
    """Return a file without the ID3 tags before it, and whether it had some.

    Players skip them before any format, and pictures are in them.
    """
    left = memoryview(content)
    tags = 0
    while tags < _MOST_TAGS and (tag := _ID3.match(left[:10])) is not None:
        size = 0
        for byte in tag[2]:
            size = size << 7 | byte
        footer = 10 if tag[1][0] & 0x10 else 0
        left = left[10 + size + footer :]
        tags += 1
    return left, tags > 0


def libav_format(content: bytes) -> str | None:
    """Return libav's name of a file's format, by its first bytes; None if it is not read here."""
    left, tagged = without_tags(content)
    first = bytes(left[:1024])
    fits = (name for name, bytes_ in _FIRST_BYTES.items() if re.match(bytes_, first, re.DOTALL))
    return next(fits, "mp3" if tagged else None)


class AudioContainer:
    """The first track of sound of a file, decoded in blocks; damaged packets are skipped.

    Raises ContainerError if there is none, or it has a codec that is not read, and MemoryError if
    libav is given no more memory.
    """

    def __init__(self, content: bytes, form: str) -> None:
        import av

        self.form = form
        self.packets = self.damaged = self.frames = self.samples = 0  # so far
        self.is_complete = False  # whether the end was reached
        self._content = without_tags(content)[0]
        options = {"codec_whitelist": ",".join(sorted(CODECS)), "max_streams": str(_LIBAV_TRACKS)}
        try:
            opened = av.open(io.BytesIO(self._content), "r", format=form, container_options=options)
            self._file: InputContainer = opened
            self._track = track = self._sound()
            self._said_s = (opened.duration or 0) / 1e6
            if track.duration is not None and track.time_base is not None:
                self._said_s = float(track.duration * track.time_base)
            self._decoded = self._frames()
            # What a stream says of itself is not always what is decoded: HE-AAC has twice the rate.
            self._first = next(self._decoded)
        except (ContainerError, MemoryError):
            raise
        except (av.FFmpegError, ValueError, StopIteration) as error:
            lost = lacks_index(self._content, form)
            raise ContainerError(_NO_INDEX if lost else "it cannot be read") from error
        self.rate_hz = self._first.sample_rate
        names = [channel.name for channel in self._first.layout.channels]
        self.channels = len(names)
        # Whether each is meant for voices; low-frequency effects are not
        self.is_full_band = np.array([name not in {"LFE", "LFE2"} for name in names])

    def blocks(self) -> Iterator[Channels]:
        """Yield the samples from the beginning on.

        Raises ContainerError if the rate or the channels change, or the file cannot be read.
        """
        import av

        gathered: list[NDArray[Any]] = []
        count = 0
        try:
            for frame in chain([self._first], self._decoded):
                if (frame.sample_rate, frame.layout.nb_channels) != (self.rate_hz, self.channels):
                    raise ContainerError("its rate or its channels change")
                gathered.append(frame.to_ndarray())
                count += frame.samples
                if count >= _BLOCK:
                    yield self._floats(gathered)
                    gathered = []
                    count = 0
            if gathered:
                yield self._floats(gathered)
        except (ContainerError, MemoryError):
            raise
        except (av.FFmpegError, ValueError) as error:
            raise ContainerError("it cannot be read") from error
        finally:
            self._file.close()

    @property
    def stated_s(self) -> float | None:
        """Seconds that the file says it has; None if it says nothing."""
        if not states_length(self._content, self.form):
            return None
        # Of some formats libav says what is there.
        return max(self._said_s, self.samples / self.rate_hz * stated_share(self._content))

    @property
    def lacks_end(self) -> bool:
        """Whether the mark of the end is missing, of a format that has one."""
        return lacks_last_page(self._content, self.form)

    def _sound(self) -> "AudioStream":
        """Return the track of sound that is decoded."""
        tracks = [one for one in self._file.streams if not _is_picture(one)]
        if len(tracks) > MOST_TRACKS:
            raise ContainerError(f"it has {len(tracks)} tracks; at most {MOST_TRACKS} are read")
        if not self._file.streams.audio:
            raise ContainerError("it has no sound")
        track = self._file.streams.audio[0]
        codec = track.codec_context.name if track.codec_context else "an unknown codec"
        if codec not in CODECS:
            raise ContainerError(f"{self.form.upper()} with {codec} is not supported")
        track.codec_context.thread_count = 1  # threads need more memory than they save time
        return track

    def _frames(self) -> "Iterator[AudioFrame]":
        """Yield frames until the end, or until enough packets were looked at."""
        import av

        for packet in self._file.demux(self._track):
            self.packets += 1
            if max(self.packets, self.frames) > MOST_PACKETS:
                return
            try:
                frames = packet.decode()
            except MemoryError:
                raise
            except av.FFmpegError as error:
                self.damaged += 1
                if self.damaged > max(_MOST_DAMAGED, self.packets // 2):
                    raise ContainerError(f"{self.damaged} of its packets are damaged") from error
                continue
            for frame in frames:
                self.frames += 1
                self.samples += frame.samples
                yield frame
        self.is_complete = True

    def _floats(self, frames: Sequence[NDArray[Any]]) -> Channels:
        """Return frames of one format, a row for each channel or all in one row, as floats."""
        whole = np.concatenate(frames, axis=1)
        if len(whole) != self.channels:
            whole = whole.reshape(-1, self.channels).T
        if whole.dtype.kind == "f":
            return whole.astype(np.float32)
        bits = 8 * whole.dtype.itemsize
        middle = 1 << (bits - 1) if whole.dtype.kind == "u" else 0
        return ((whole.astype(np.float64) - middle) / 2.0 ** (bits - 1)).astype(np.float32)


def _is_picture(track: "Stream") -> bool:
    """Return whether a track is a picture of a tag."""
    from av.stream import Disposition

    return bool(track.disposition & Disposition.attached_pic)

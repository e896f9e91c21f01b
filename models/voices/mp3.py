"""MP3 files unpacked by libav: what soundfile uses for them writes what it thinks to stderr."""

import io
from collections.abc import Iterator
from typing import NamedTuple

import av
import numpy as np
from av.audio.frame import AudioFrame
from av.container import InputContainer
from numpy.typing import NDArray

_FAR_BEYOND = 10
"""Times the longest length that a file may claim: without a table it is guessed from the first
frame, and is wrong by some times where the rate of bits varies."""

_CODECS = frozenset({"mp3", "mp3float"})


class Mp3Error(ValueError):
    """The file cannot be read."""


class Mp3TooLong(Mp3Error):
    """It has more sound than is wanted, or says so."""


class Mp3(NamedTuple):
    """What an MP3 file holds.

    Args:
        samples: ``[N, C]`` in [-1, 1].
        rate_hz: Samples in a second.
    """

    samples: NDArray[np.float32]
    rate_hz: int


def looks_like_mp3(content: bytes) -> bool:
    """Tell from its first bytes whether a file may be MP3: a tag, or a frame's sync word."""
    return content[:3] == b"ID3" or (content[:1] == b"\xff" and content[1:2] >= b"\xe0")


def read_mp3(content: bytes, max_s: float) -> Mp3:
    """Unpack an MP3 file, if it is no longer than it may be.

    Frames that are damaged are left out, as players do.

    Args:
        content: The file.
        max_s: Seconds that it may have; no more are unpacked.

    Raises:
        Mp3TooLong: It has more, or says that it has.
        Mp3Error: It is none, has no sound, or changes its rate or channels on the way.
    """
    try:
        with av.open(io.BytesIO(content), "r", format="mp3") as file:
            return _read(file, max_s)
    except Mp3Error:
        raise
    except (av.FFmpegError, IndexError, ValueError) as error:
        raise Mp3Error(str(error)) from error


def _read(file: InputContainer, max_s: float) -> Mp3:
    stream = file.streams.audio[0]
    if stream.codec_context.name not in _CODECS:
        raise Mp3Error("it is not MP3")
    said_s = float((stream.duration or 0) * (stream.time_base or 0))
    if said_s > _FAR_BEYOND * max_s:
        raise Mp3TooLong("it says that it is too long")
    pieces: list[NDArray[np.float32]] = []
    many = rate_hz = 0
    for frame in _frames(file):
        piece = frame.to_ndarray().T.astype(np.float32)
        if pieces and (frame.sample_rate, piece.shape[1]) != (rate_hz, pieces[0].shape[1]):
            raise Mp3Error("its rate or its channels change")
        rate_hz = frame.sample_rate
        pieces.append(piece)
        many += len(piece)
        if many > max_s * rate_hz:
            raise Mp3TooLong("it is too long")
    if not pieces:
        raise Mp3Error("there is no sound in it")
    return Mp3(np.concatenate(pieces), rate_hz)


def _frames(file: InputContainer) -> Iterator[AudioFrame]:
    for packet in file.demux(file.streams.audio[0]):
        try:
            yield from packet.decode()
        except av.InvalidDataError:
            continue

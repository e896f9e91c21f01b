"""MP3 decoding with libav; soundfile's decoder writes its warnings to stderr."""

import io
from collections.abc import Iterator
from typing import NamedTuple

import av
import numpy as np
from av.audio.frame import AudioFrame
from av.container import InputContainer
from numpy.typing import NDArray

_CLAIM_FACTOR = 10
"""A file may claim up to this many times the longest length: without a table the length is
estimated from the first frame, and far off if the bit rate varies."""

_CODECS = frozenset({"mp3", "mp3float"})


class Mp3Error(ValueError):
    """The file cannot be read."""


class Mp3TooLong(Mp3Error):
    """The file is longer than allowed, or claims to be."""


class Mp3(NamedTuple):
    """A decoded MP3 file.

    Args:
        samples: ``[N, C]`` in [-1, 1].
        rate_hz: Sample rate.
    """

    samples: NDArray[np.float32]
    rate_hz: int


def looks_like_mp3(content: bytes) -> bool:
    """Return whether a file begins with an ID3 tag or the sync word of an MPEG frame."""
    return content[:3] == b"ID3" or (content[:1] == b"\xff" and content[1:2] >= b"\xe0")


def read_mp3(content: bytes, max_s: float) -> Mp3:
    """Decode an MP3 file up to a maximum length; damaged frames are skipped, as players do.

    Args:
        content: The file.
        max_s: Longest audio accepted, in seconds; no more is decoded.

    Raises:
        Mp3TooLong: The audio is longer, or its header claims so.
        Mp3Error: The file is no MP3, has no audio, or its rate or channels change.
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
    if said_s > _CLAIM_FACTOR * max_s:
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

"""Where an utterance is cut into chunks: a function of the frame index alone.

A chunk is what the NAR levels and the codec compute at a time. The first chunks are short, for an
early first sound, the later ones longer, for less work a frame. Speech that is returned whole is
computed in the same chunks: matrix products of other shapes round differently, and a rounding can
change a code.
"""

from bisect import bisect_left
from collections.abc import Iterator
from itertools import accumulate, chain, islice, repeat
from typing import NamedTuple

from app.engine.interface import FirstChunk
from samplers.knobs.features import rewindable
from samplers.knobs.params import SamplingParams

_BLOCKS = (1, 1, 2, 3)  # of the first chunks; 0.2, 0.2, 0.4 and 0.6 s of the usual 15 frames
_LATER_BLOCKS = 4
_MANY = 2**31  # more frames than there are; a window may be larger than a range can be long


def chunk_blocks() -> Iterator[int]:
    """Yield the blocks of each chunk, without end."""
    return chain(_BLOCKS, repeat(_LATER_BLOCKS))


def chunk_lengths(block_frames: int) -> list[int]:
    """Return the frames that a chunk may have, ascending, if it is not the last."""
    return sorted({count * block_frames for count in (*_BLOCKS, _LATER_BLOCKS)})


def first_chunks(
    params: SamplingParams, block_frames: int, frame_rate_hz: float
) -> tuple[FirstChunk, ...]:
    """Return what the short chunks of an utterance and the first long one wait for.

    The frames of the first chunk are final at once, those of the others once they can no longer be
    taken back: see `samplers.ar.backtracking`.
    """
    first, *ends = accumulate(count * block_frames for count in islice(chunk_blocks(), 5))
    sampled = [_sampled_until_final(params, end) for end in ends]
    return tuple(
        FirstChunk(frames - first, before / frame_rate_hz, frames / frame_rate_hz)
        for frames, before in zip(sampled, (first, *ends), strict=False)
    )


def _sampled_until_final(params: SamplingParams, frames: int) -> int:
    """Return how many frames are sampled when so many of them can no longer be taken back."""
    if not params.backtrack:
        return frames
    most = range(frames + min(params.backtrack_window, _MANY))
    return bisect_left(most, frames, lo=frames, key=lambda n: n - rewindable(params, n))


class Window(NamedTuple):
    """Frames ``start`` to ``end`` (excluded) are computed in passes over ``first`` to ``last``."""

    first: int
    start: int
    end: int
    last: int


class Windows:
    """Cuts the frames of one utterance as they come, each into one window.

    The windows have ``lengths`` frames, of which the last may be shorter; their passes see so
    many frames before and after them, too.
    """

    def __init__(self, lengths: Iterator[int], left_context: int = 0, lookahead: int = 0) -> None:
        self._lengths = lengths
        self._left_context = left_context
        self._lookahead = lookahead
        self._start = 0
        self._end = next(lengths)

    def up_to(self, count: int, *, ended: bool) -> list[Window]:
        """Return the windows that ``count`` frames complete, and that were not returned before."""
        windows = []
        while self._start < count if ended else self._end + self._lookahead <= count:
            first = max(0, self._start - self._left_context)
            end = min(self._end, count)
            windows.append(Window(first, self._start, end, min(end + self._lookahead, count)))
            self._start = self._end
            self._end += next(self._lengths)
        return windows


def chunks_of(block_frames: int) -> Windows:
    """Return what cuts an utterance into chunks."""
    return Windows(count * block_frames for count in chunk_blocks())

"""How fast a text is written, and how long its first sound waits so that no gap is heard.

Where text is slower than speech, sound that began at once would stop for want of words.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from time import monotonic
from typing import Final, Self

_CAUTION: Final = 0.6  # of the seconds of speech that are written a second, what may be lacking
_LEAST: Final = 1.2  # seconds of speech written a second, from which it is no slower than speech
_MORE_S: Final = 0.2  # of speech: words come whole
_PACKETS: Final = 1.5  # by which words may be later: a word is certain once the next one begins


class TextPace:
    """How fast a text has been written. One thread adds to it; any may ask."""

    def __init__(self) -> None:
        self._first_s = self._last_s = 0.0
        self._packets = self._chars = 0  # behind the first packet

    def note(self, chars: int) -> None:
        """Count a packet that has come."""
        now_s = monotonic()
        if not self._first_s:
            self._first_s = now_s
        else:
            self._packets += 1
            self._chars += chars
        self._last_s = now_s

    @property
    def chars_per_s(self) -> float | None:
        """Characters a second; None while there is but one packet.

        A packet that is later than the others were is waited for already, and counts so far.
        """
        if not self._packets:
            return None
        took_s = self._last_s - self._first_s
        waited_s = monotonic() - self._first_s - took_s / self._packets
        longest_s = max(took_s, waited_s)
        return self._chars / longest_s if longest_s else math.inf

    @property
    def late_s(self) -> float:
        """By how many seconds words may come later than at this pace."""
        return _PACKETS * (self._last_s - self._first_s) / max(1, self._packets)


@dataclass(frozen=True, slots=True)
class KnownText:
    """How much of a text that is written while it is spoken is there."""

    speech_s: float  # seconds of speech that can be sampled
    char_s: float  # seconds of speech that a character takes
    whole: bool = False  # whether nothing more follows

    def sampled(self, speech_s: float) -> Self:
        """Return what is known once so many seconds of speech are sampled: at least those."""
        return replace(self, speech_s=max(self.speech_s, speech_s))


def held_s(
    chunks: Sequence[tuple[float, float]],
    known: KnownText,
    chars_per_s: float | None,
    late_s: float,
) -> float:
    """Return for how long playback waits so that the words of some chunks come in time.

    Of each chunk there are the seconds of speech that are sampled when it can be made, and those of
    audio before it. It may be ``late_s`` later than its words are at this pace. Infinite for a text
    that is slower than speech: how long its sentence is nobody knows. 0 at an unknown pace.
    """
    if known.whole or chars_per_s is None:
        return 0.0
    written = chars_per_s * known.char_s  # seconds of speech a second
    pace = written - _CAUTION
    if written < _LEAST:
        return math.inf
    late = [0.0]
    for speech_s, before_s in chunks:
        missing_s = speech_s + _MORE_S - known.speech_s
        if missing_s > 0.0:
            late.append(missing_s / pace + late_s - before_s)
    return max(late)

"""How far a sequence has spoken its text, by the alignment: where it ends, where it goes back.

A model may go on behind its last word, and say some of the text again; the loops that
`samplers.ar.backtracking` looks for are codes that repeat, not words. The attention of the
alignment head shows both at once. What was measured: docs/results/texts.md.
"""

from typing import Final, Self

import numpy as np

from models.alignment.path import MonotonicPath
from samplers.knobs.params import SamplingParams

_CLEAR: Final = 0.7  # mean attention from which frames are taken to speak a symbol
# Frames from which speech that leaves the end of its text says some of it again. Before, the
# attention may still flick to the last word.
_RESTED: Final = 8
_LONGEST_REST: Final = 36  # frames, the longest that sentences have behind their text
_MARKS: Final = 2  # at the end of the symbols: the last mark, and the end of the text


def follows_text(params: SamplingParams) -> bool:
    """Return whether the alignment is looked at while frames are sampled."""
    returns = params.backtrack and params.backtrack_repeat_frames > 0
    return params.alignment_stop_frames > 0 or returns


class TextProgress:
    """What the alignment of one sequence says, a frame at a time.

    Args:
        symbols: How many the text has, the marks of its begin and end among them.
        lead_frames: How far the alignment is ahead of the sound.
    """

    def __init__(self, params: SamplingParams, symbols: int, lead_frames: int) -> None:
        self.path = MonotonicPath(symbols)
        self._params = params
        self._symbols = symbols
        self._lead = lead_frames
        self._end = symbols - _MARKS

    def copy(self) -> Self:
        """Return the progress of a sequence that goes on by itself."""
        other = type(self)(self._params, self._symbols, self._lead)
        other.path = self.path.copy()
        return other

    @property
    def spoken(self) -> int:
        """The first frame behind the last symbol that is spoken; all frames where there is none."""
        return int(np.searchsorted(self.path.walked(), self._end))

    @property
    def goes_on(self) -> bool:
        """Whether there are more frames behind the text than of its last sound and a rest."""
        return len(self.path) - self.spoken > _LONGEST_REST

    @property
    def returned(self) -> int | None:
        """The first frame of those that clearly speak earlier symbols again; None if none do."""
        run = self._behind()
        wanted = self._params.backtrack_repeat_frames
        return len(self.path) - run if wanted and run >= wanted else None

    @property
    def end(self) -> int | None:
        """How many frames to keep of a text that has been spoken; None while it goes on."""
        frames = len(self.path)
        rest = self._rest()
        if not self._params.alignment_stop_frames or not rest:
            return None
        run = min(self._behind(), rest)
        left = run >= max(1, self._params.backtrack_repeat_frames) and rest - run >= _RESTED
        if rest < self._params.alignment_stop_frames and not left:
            return None
        return frames - run + min(run, self._lead)

    def _rest(self) -> int:
        """Return for how many frames the path has been at the end of the text."""
        at = self.path.at
        rest = 0
        while rest < len(at) and at[-1 - rest] >= self._end:
            rest += 1
        return rest

    def _behind(self) -> int:
        """Return how many of the newest frames clearly speak symbols before the path's."""
        behind = self.path.behind
        run = 0
        total = 0.0
        while run < len(behind) and behind[-1 - run] > 0.0:
            run += 1
            total += behind[-run]
        return run if run and total / run >= _CLEAR else 0

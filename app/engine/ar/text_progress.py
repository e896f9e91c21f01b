"""How far a sequence has spoken its text, by the alignment: where it ends, where it goes back.

A model may go on behind its last word, and say some of the text again; the loops that
`samplers.ar.backtracking` looks for are codes that repeat, not words. The attention of the
alignment head shows both at once. What was measured: docs/results/texts.md.
"""

from typing import Final, Self

import numpy as np

from app.engine.utterance import UtteranceSpec
from models.alignment.path import MonotonicPath
from samplers.knobs.params import SamplingParams

_CLEAR: Final = 0.7  # mean attention from which frames are taken to speak a symbol
# Frames from which speech that leaves the end of its text says some of it again. Before, the
# attention may still flick to the last word.
_RESTED: Final = 8
_LONGEST_REST: Final = 36  # frames, the longest that sentences have behind their text
# Frames after which text is taken to be stuck on a word, and grows all the same.
_STUCK: Final = 90
# Frames at the end of a text that grew, after which it ends whatever `alignment_stop_frames` says:
# the stop was not asked for at its beginning, and may not come.
_RESTED_AT_END: Final = 24
_MARKS: Final = 2  # at the end of the symbols: the last mark, and the end of the text


def follows_text(params: SamplingParams) -> bool:
    """Return whether the alignment is looked at while frames are sampled."""
    returns = params.backtrack and params.backtrack_repeat_frames > 0
    return params.alignment_stop_frames > 0 or returns or params.text_lookahead_words > 0


class TextProgress:
    """What the alignment of one sequence says, a frame at a time.

    Args:
        inputs: The utterance, whose text may grow.
        width: W of the attention that the path is made from.
        lead_frames: How far the alignment is ahead of the sound.
    """

    def __init__(self, inputs: UtteranceSpec, width: int, lead_frames: int) -> None:
        symbols = len(inputs.phoneme_ids)
        self.path = MonotonicPath(symbols)
        params = inputs.params
        self._params = params
        self._inputs = inputs
        self._width = width
        self._lead = lead_frames
        self._end = symbols - _MARKS
        usual = _RESTED_AT_END if params.text_lookahead_words else 0
        self._stop_frames = params.alignment_stop_frames or usual
        self._grew = 0  # the frame at which the text has grown last

    def copy(self) -> Self:
        """Return the progress of a sequence that goes on by itself."""
        other = type(self)(self._inputs, self._width, self._lead)
        other.path = self.path.copy()
        other._grew = self._grew
        return other

    @property
    def is_due(self) -> bool:
        """Whether the next frame is drawn with more of the text, of which there is more."""
        due = self._inputs.due
        if due is None or not self.path.at:
            return False
        return self.path.at[-1] >= due or len(self.path) - self._grew >= _STUCK

    def grow(self, inputs: UtteranceSpec) -> None:
        """Go on with a later version of the text."""
        symbols = len(inputs.phoneme_ids)
        self.path.grow(symbols, self._inputs.places.indices_in(inputs.places), self._width)
        self._inputs = inputs
        self._end = symbols - _MARKS
        self._grew = len(self.path)

    def rewind(self, frames: int) -> None:
        """Keep the first frames alone; the text stays as long as it is."""
        self.path.rewind(frames)
        self._grew = min(self._grew, frames)

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
        """Frames to keep if the utterance ends now; None: it goes on."""
        frames = len(self.path)
        rest = self._rest()
        if not self._stop_frames or not rest or not self._inputs.whole:
            return None
        run = min(self._behind(), rest)
        left = run >= max(1, self._params.backtrack_repeat_frames) and rest - run >= _RESTED
        if rest < self._stop_frames and not left:
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
        """Return for how many frames speech is before the path, clearly at the newest."""
        behind = self.path.behind
        run = 0
        while run < len(behind) and behind[-1 - run] > 0.0:
            run += 1
        # Where speech goes back it may be unclear at first
        newest = behind[len(behind) - min(run, max(1, self._params.backtrack_repeat_frames)) :]
        return run if newest and sum(newest) / len(newest) >= _CLEAR else 0

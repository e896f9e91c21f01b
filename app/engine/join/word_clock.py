"""The times of the words and phonemes of one utterance, from the alignment of its frames."""

from collections.abc import Callable, Sequence
from typing import Final

import numpy as np

from app.engine.results import Alignment, PhonemeTimes, WordTimes
from models.text.words import WordSpan

# A word that the sound lacks is aligned with frames that the text makes unlikely: measured in
# docs/results/studio.md. In nats a frame.
_UNLIKELY: Final = -2.0
_LESS_THAN_USUAL: Final = 1.3
_IMPOSSIBLE: Final = -4.0

_MODIFIERS: Final = frozenset("\u02d0\u0303\u0329\u02b2\u02b0")
_STRESS: Final = frozenset("\u02c8\u02cc")


class WordClock:
    """Knows when each word begins and ends, as far as the frames have come.

    Frames are counted in the utterance's own sound, before it is trimmed. Each id stands for
    ``lengths`` ``[S]`` symbols of ``phonemes``, the marks for none; the alignment is
    ``lead_frames`` ahead of the sound.
    """

    def __init__(
        self,
        words: Sequence[WordSpan],
        phonemes: str,
        lengths: Sequence[int],
        *,
        lead_frames: int,
        with_phonemes: bool,
        voice: str = "",
    ) -> None:
        self._words = words
        self._phonemes = phonemes
        self._lead = lead_frames
        self._with_phonemes = with_phonemes
        self._voice = voice
        ends = np.cumsum(lengths)
        # The first id at or after each symbol, the mark of the end for the end of the text.
        self._ids = np.searchsorted(ends - lengths, np.arange(len(phonemes) + 1))
        self._ids = np.maximum(self._ids, 1)
        self._entered: list[int] = []  # the first frame at or after each id
        self._sums = np.zeros(len(lengths))
        self._counts = np.zeros(len(lengths), np.int64)
        self._frames = 0

    def push(self, alignment: Alignment) -> None:
        """Take the alignment of the next frames."""
        for frame, (at, logprob) in enumerate(
            zip(alignment.path, alignment.logprobs, strict=True), start=self._frames
        ):
            self._entered += [frame] * (int(at) + 1 - len(self._entered))
            self._sums[at] += logprob
            self._counts[at] += 1
        self._frames += len(alignment.path)

    def words(
        self, utterance: int, start_s: float, trimmed_s: float, frame_s: float, end_s: float | None
    ) -> tuple[WordTimes, ...]:
        """Return the words that have begun.

        The utterance's sound begins at ``start_s``, after ``trimmed_s`` of it were cut off.
        Until it has ended, its end is None, and the end of what sounds is not known.
        """

        def clock(begin: int) -> float | None:
            frame = self._reached(begin, over=end_s is not None)
            if frame is None:
                return None
            at_s = max(start_s, start_s + (frame + self._lead) * frame_s - trimmed_s)
            return at_s if end_s is None else min(at_s, end_s)

        timings: list[WordTimes] = []
        for number, (word, begin, end, spoken) in enumerate(self._words):
            since_s = clock(begin)
            until_s = clock(end)
            if since_s is None:
                break
            missing = until_s is not None and self._is_missing(begin, end)
            phonemes = self._timed_phonemes(begin, end, clock) if self._with_phonemes else None
            timings.append(
                WordTimes(
                    utterance,
                    number,
                    word,
                    spoken,
                    since_s,
                    until_s,
                    missing,
                    phonemes,
                    self._voice,
                )
            )
        return tuple(timings)

    def _reached(self, symbol: int, *, over: bool) -> int | None:
        """Return the first frame at or after a symbol; None if there is none yet."""
        number = int(self._ids[symbol])
        if number < len(self._entered):
            return self._entered[number]
        return self._frames if over else None

    def _is_missing(self, begin: int, end: int) -> bool:
        """Return whether the frames of some symbols were unlikely for the text, or are none."""
        if begin == end:
            return False  # spoken as part of another word
        own = slice(int(self._ids[begin]), int(self._ids[end]))
        count = int(self._counts[own].sum())
        if not count:
            return True
        before = slice(0, own.stop)
        usual = self._sums[before].sum() / self._counts[before].sum()
        likely = self._sums[own].sum() / count
        return bool(likely < max(_IMPOSSIBLE, min(_UNLIKELY, usual - _LESS_THAN_USUAL)))

    def _timed_phonemes(
        self, begin: int, end: int, clock: Callable[[int], float | None]
    ) -> tuple[PhonemeTimes, ...]:
        """Return the phonemes of a word that have begun; marks belong to the sound beside them."""
        timings: list[PhonemeTimes] = []
        at = begin
        while at < end:
            after = at + 1
            while after < end and self._phonemes[after - 1] in _STRESS:
                after += 1
            while after < end and self._phonemes[after] in _MODIFIERS:
                after += 1
            since_s = clock(at)
            if since_s is None:
                break
            timings.append(PhonemeTimes(self._phonemes[at:after], since_s, clock(after)))
            at = after
        return tuple(timings)

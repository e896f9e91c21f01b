"""How much sound this machine makes in a second, as measured while it makes some."""

import math
from typing import Final

SHARE: Final = 0.8
"""Of the measured speed that is promised: more streams make each a little dearer, and chunks come
in lumps."""

SHORT_S, LONG_S = 6.0, 60.0
"""Seconds of sound over which the two averages of a cost forget. The dearer of them counts: a
machine that became slower is noticed at once, one that became quicker is trusted after a while."""

DEVIATIONS: Final = 2.0  # above the mean, for a start that is told beforehand
_FADED: Final = 0.98  # what is left of a peak at each further measurement
_PHONEME_S: Final = 0.075  # of speech a phoneme symbol, before any was measured
_NEWEST: Final = 0.1  # weight of the newest measurement of what comes once a job


class Cost:
    """Seconds of work a second of sound, an average that forgets."""

    def __init__(self, forget_s: float) -> None:
        """Forget over so many seconds of sound."""
        self._forget_s = forget_s
        self._work_s = self._sound_s = 0.0

    def note(self, work_s: float, sound_s: float) -> None:
        """Count work that made some sound; work may come first, and its sound later."""
        kept = math.exp(-sound_s / self._forget_s)
        self._work_s = kept * self._work_s + work_s
        self._sound_s = kept * self._sound_s + sound_s

    @property
    def per_second(self) -> float:
        """Seconds of work a second of sound; 0 while nothing is known."""
        return self._work_s / self._sound_s if self._sound_s else 0.0


class Peak:
    """The longest of some times, one that fades as others are measured."""

    def __init__(self) -> None:
        """Begin with none."""
        self.seconds = 0.0

    def note(self, seconds: float) -> None:
        """Count one."""
        self.seconds = max(seconds, _FADED * self.seconds)


class Capacity:
    """What a second of sound costs the two workers; each is written by its own thread alone.

    Costs are wall time: where the workers have less than a processor each, that is in them. They
    are added up, as if the workers took turns: side by side they are quicker where each has a
    processor to itself, and no quicker where a quota or other programs leave them one together.
    """

    def __init__(self) -> None:
        """Know nothing."""
        self._drawing = Cost(SHORT_S), Cost(LONG_S)
        self._voicing = Cost(SHORT_S), Cost(LONG_S)
        self._chunk, self._admission = Peak(), Peak()
        self._start_s = self._start_deviation_s = 0.0
        self._phoneme_s = _PHONEME_S

    def note_level_0(self, work_s: float, sound_s: float) -> None:
        """Count a step of level 0 that drew ``sound_s`` seconds of sound, over all its rows."""
        for cost in self._drawing:
            cost.note(work_s, sound_s)

    def note_sound(self, work_s: float, sound_s: float) -> None:
        """Count work on the finer levels and the codec: one chunk."""
        self._chunk.note(work_s)
        for cost in self._voicing:
            cost.note(work_s, sound_s)

    def note_admission(self, work_s: float) -> None:
        """Count the reading of a job's prefix, during which level 0 of no other is drawn."""
        self._admission.note(work_s)

    def note_start(self, start_s: float) -> None:
        """Count the seconds from a job's admission to its first sound."""
        if not self._start_s:
            self._start_s, self._start_deviation_s = start_s, start_s / 2
            return
        error_s = start_s - self._start_s
        self._start_s += _NEWEST * error_s
        self._start_deviation_s += _NEWEST * (abs(error_s) - self._start_deviation_s)

    def note_spoken(self, phonemes: int, speech_s: float) -> None:
        """Count an utterance of so many phoneme symbols, for `speech_s`."""
        if phonemes:
            self._phoneme_s += _NEWEST * (speech_s / phonemes - self._phoneme_s)

    @property
    def speed(self) -> float:
        """Seconds of sound a second that are promised; infinite while nothing is known."""
        costs = self._drawing, self._voicing
        together = sum(max(cost.per_second for cost in worker) for worker in costs)
        return SHARE / together if together else math.inf

    @property
    def blocking_s(self) -> float:
        """Seconds for which a stream may have to wait for work that cannot be interrupted.

        Whoever is most urgent comes next, but a chunk or an admission that was begun is ended
        first: so much sound must lie before a listener for them not to notice.
        """
        return self._chunk.seconds + self._admission.seconds

    @property
    def streams(self) -> int | None:
        """How many listeners hear no gap at once; None while nothing is known."""
        return None if math.isinf(self.speed) else math.floor(self.speed)

    @property
    def start_s(self) -> float:
        """Seconds from a job's admission to its first sound that few jobs exceed."""
        return self._start_s + DEVIATIONS * self._start_deviation_s

    def speech_s(self, phonemes: int) -> float:
        """Return how long an utterance of so many phoneme symbols will likely be."""
        return self._phoneme_s * phonemes

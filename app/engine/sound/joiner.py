"""How utterances become one sound: edges trimmed and faded, pauses between.

The same whether the sound is sent whole or in pieces. Knows samples only.
"""

import numpy as np

from app.engine.job import Samples

EDGE_SILENCE_S = 0.060
FADE_S = 0.005
SILENCE_DBFS = -50.0

_LOUD = 10 ** (SILENCE_DBFS / 20)
_NOTHING: Samples = np.zeros(0, np.float32)


class Edges:
    """Trims and fades one utterance while its samples come.

    Silence at both ends is cut down to 60 ms; an utterance with nothing louder than -50 dBFS keeps
    its first 120 ms. What is left rises from and falls to zero within 5 ms, so that no cut clicks.
    A sample is given as soon as it is known to lie before the fall: silence is held back until a
    loud sample follows.
    """

    def __init__(self, sample_rate_hz: int) -> None:
        """Begin before the first sample."""
        self._kept = round(EDGE_SILENCE_S * sample_rate_hz)
        self._fade = round(FADE_S * sample_rate_hz)
        self._held = _NOTHING
        self._end = 2 * self._kept  # of the sound among what is held, if only silence follows
        self._loud = self._risen = False

    def push(self, samples: Samples) -> Samples:
        """Take the next samples ``[N]`` and return those that are now certain."""
        held = np.concatenate([self._held, samples])
        loud = np.flatnonzero(np.abs(samples) > _LOUD) + len(self._held)
        start = 0
        if loud.size:
            if not self._loud:
                start = max(0, loud[0] - self._kept)
                self._loud = True
            self._end = int(loud[-1]) + 1 + self._kept - start
        self._held = held[start:]
        return self._give() if self._loud else _NOTHING

    def finish(self) -> Samples:
        """Return what was held back and belongs to the sound; nothing may follow."""
        rest = self._held[: self._end].copy()
        # Shorter than a rise and a fall, it is still in one piece, and they meet in its middle.
        fade = self._fade if self._risen else min(self._fade, len(rest) // 2)
        if not self._risen:
            rest[:fade] *= _ramp(fade)
        rest[len(rest) - fade :] *= _ramp(fade)[::-1]
        self._held = _NOTHING
        return rest

    def _give(self) -> Samples:
        count = min(self._end, len(self._held)) - self._fade
        if count <= 0 or (not self._risen and count < self._fade):
            return _NOTHING
        given, self._held = self._held[:count].copy(), self._held[count:]
        self._end -= count
        if not self._risen:
            given[: self._fade] *= _ramp(self._fade)
            self._risen = True
        return given


class Joiner:
    """Joins the utterances of one job; what comes out, concatenated, is the whole sound.

    Attributes:
        given: How many samples came out so far.
    """

    def __init__(self, sample_rate_hz: int, pause_s: float, *, owed_s: float = 0.0) -> None:
        """Begin with no sound.

        Args:
            sample_rate_hz: Samples in a second.
            pause_s: Silence between two sounds where the text asks for none in particular.
            owed_s: Silence before the first sound: what the joiner of a sound before this owed.
        """
        self._rate_hz = sample_rate_hz
        self._between_s = pause_s
        self._pause_s = owed_s
        self._edges: Edges | None = None
        self.given = 0

    @property
    def owed_s(self) -> float:
        """Seconds of silence between the utterance that ended and whatever follows it."""
        return self._pause_s

    def push(self, samples: Samples) -> Samples:
        """Take the next samples ``[N]`` of an utterance and return what is now certain.

        The pause before the utterance comes with its first sample.
        """
        if not len(samples):
            return _NOTHING
        if self._edges is not None:
            return self._count(self._edges.push(samples))
        self._edges = Edges(self._rate_hz)
        return self._count(self._silence(self._pause_s), self._edges.push(samples))

    def finish(self, pause_after_s: float | None, *, last: bool = False) -> Samples:
        """End the utterance and return the rest of its sound.

        Args:
            pause_after_s: Seconds of silence that the text asks for after it; None leaves it to
                us, which is the ``pause_s`` of all, and none after an utterance without a sound.
            last: Nothing follows; the pause that the text asks for is then given at once.
        """
        rest = _NOTHING
        if self._edges is not None:
            rest, self._edges = self._edges.finish(), None
            self._pause_s = self._between_s if pause_after_s is None else pause_after_s
        else:
            self._pause_s += pause_after_s or 0.0
        if not last or pause_after_s is None:
            return self._count(rest)
        asked, self._pause_s = self._silence(self._pause_s), 0.0
        return self._count(rest, asked)

    def _count(self, *parts: Samples) -> Samples:
        joined = np.concatenate(parts)
        self.given += len(joined)
        return joined

    def _silence(self, seconds: float) -> Samples:
        return np.zeros(round(seconds * self._rate_hz), np.float32)


def _ramp(length: int) -> Samples:
    return np.linspace(0.0, 1.0, length, endpoint=False, dtype=np.float32)

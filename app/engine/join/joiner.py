"""Joins utterances to one sound: each at its tempo, silence trimmed and edges faded, with pauses.

The samples are the same whether the sound is sent whole or in chunks.
"""

import numpy as np

from app.engine.join.tempo import Tempo
from app.engine.results import Samples

EDGE_SILENCE_S = 0.060
FADE_S = 0.005
SILENCE_DBFS = -50.0

_LOUD = 10 ** (SILENCE_DBFS / 20)
_NO_SAMPLES: Samples = np.zeros(0, np.float32)


class Edges:
    """Trims and fades one utterance as its samples come.

    Silence at both ends is cut down to 60 ms; an utterance with nothing louder than -50 dBFS keeps
    its first 120 ms. What is left fades in and out within 5 ms, so that no cut clicks. A sample is
    returned once it is known to lie before the fade-out: silence longer than is kept is held back
    until a louder sample follows.
    """

    def __init__(self, sample_rate_hz: int) -> None:
        self.trimmed = 0  # samples cut off at the beginning; final once something `loud` has come
        self._kept = round(EDGE_SILENCE_S * sample_rate_hz)
        self._fade = round(FADE_S * sample_rate_hz)
        self._held = _NO_SAMPLES
        self._end = 2 * self._kept  # of the sound within `_held`, if only silence follows
        self.loud = self._faded_in = False

    def push(self, samples: Samples) -> Samples:
        """Take the next samples ``[N]`` and return those that are now final."""
        held = np.concatenate([self._held, samples])
        loud = np.flatnonzero(np.abs(samples) > _LOUD) + len(self._held)
        start = 0
        if loud.size:
            if not self.loud:
                start = self.trimmed = max(0, int(loud[0]) - self._kept)
                self.loud = True
            self._end = int(loud[-1]) + 1 + self._kept - start
        self._held = held[start:]
        return self._take_final() if self.loud else _NO_SAMPLES

    def finish(self) -> Samples:
        """Return the samples ``[N]`` that were held back and belong to the sound; once, last."""
        rest = self._held[: self._end].copy()
        # A sound shorter than both fades is still in one piece: they meet in its middle.
        fade = self._fade if self._faded_in else min(self._fade, len(rest) // 2)
        if not self._faded_in:
            rest[:fade] *= _ramp(fade)
        rest[len(rest) - fade :] *= _ramp(fade)[::-1]
        return rest

    def _take_final(self) -> Samples:
        """Remove from the held samples those that no later sample can change, and return them."""
        count = min(self._end, len(self._held)) - self._fade
        if count <= 0 or (not self._faded_in and count < self._fade):
            return _NO_SAMPLES
        final = self._held[:count].copy()
        self._held = self._held[count:]
        self._end -= count
        if not self._faded_in:
            final[: self._fade] *= _ramp(self._fade)
            self._faded_in = True
        return final


class Joiner:
    """Joins the utterances of one job; what it returns, concatenated, is the whole sound.

    Between two utterances are ``pause_s`` of silence where the text asks for no other.

    Attributes:
        samples: How many samples were returned so far.
        pending_s: Seconds of silence between the last utterance and whatever follows it.
        begin: The sample at which the newest utterance begins, after `trimmed` ones were cut off.
        end: The sample after its last; before its end, as `begin`.
    """

    def __init__(self, sample_rate_hz: int, pause_s: float, *, pending_s: float = 0.0) -> None:
        self._rate_hz = sample_rate_hz
        self._usual_pause_s = pause_s
        self.pending_s = pending_s
        self._edges: Edges | None = None
        self._tempo: Tempo | None = None
        self.samples = self.begin = self.end = self.trimmed = 0

    @property
    def sounding(self) -> bool:
        """Whether the sound of an utterance has begun, so that `trimmed` is known."""
        return self._edges is not None and self._edges.loud

    def push(self, samples: Samples, rate: float = 1.0) -> Samples:
        """Take the next samples ``[N]`` of an utterance and return those that are now final.

        The first push that is not empty begins the utterance, and returns the pause before it. All
        have the same rate: its sound lasts ``1 / rate`` times as long.
        """
        if not len(samples):
            return _NO_SAMPLES
        pause = _NO_SAMPLES
        if self._edges is None:
            self._edges = Edges(self._rate_hz)
            pause = self._silence(self.pending_s)
            self._tempo = None if rate == 1 else Tempo(rate, self._rate_hz)
            self.begin = self.end = self.samples + len(pause)
        sound = self._edges.push(samples if self._tempo is None else self._tempo.push(samples))
        self.trimmed = self._edges.trimmed
        return self._count(pause, sound)

    def finish(self, pause_after_s: float | None, *, last: bool = False) -> Samples:
        """End the utterance and return the rest of its sound.

        ``pause_after_s`` of silence follow it, None: ``pause_s``; after an utterance without
        samples they are added to `pending_s`, None as 0. If it is the last, a pause that the text
        asks for is returned at once.
        """
        rest = _NO_SAMPLES
        sounded = self._edges is not None
        if self._edges is None:
            self.begin = self.samples
            self.trimmed = 0
        else:
            if self._tempo is not None:
                rest = self._edges.push(self._tempo.close())
                self.trimmed = self._edges.trimmed
            rest = np.concatenate([rest, self._edges.finish()])
            self._edges = self._tempo = None
        self.end = self.samples + len(rest)
        if sounded:
            self.pending_s = self._usual_pause_s if pause_after_s is None else pause_after_s
        else:
            self.pending_s += pause_after_s or 0.0
        if not last or pause_after_s is None:
            return self._count(rest)
        pause = self._silence(self.pending_s)
        self.pending_s = 0.0
        return self._count(rest, pause)

    def _count(self, *parts: Samples) -> Samples:
        joined = np.concatenate(parts)
        self.samples += len(joined)
        return joined

    def _silence(self, seconds: float) -> Samples:
        return np.zeros(round(seconds * self._rate_hz), np.float32)


def _ramp(length: int) -> Samples:
    return np.linspace(0.0, 1.0, length, endpoint=False, dtype=np.float32)

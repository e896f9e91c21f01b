"""How utterances become one sound: edges trimmed and faded, pauses between.

The same whether the sound is sent whole or in pieces. Knows samples only.
"""

import numpy as np

from app.engine.job import Samples

EDGE_SILENCE_S = 0.060
FADE_S = 0.005
SILENCE_DBFS = -50.0


def trim(samples: Samples, sample_rate_hz: int) -> Samples:
    """Cut silence at both ends down to 60 ms.

    Args:
        samples: ``[N]``.
        sample_rate_hz: Samples in a second.

    Returns:
        A view of ``samples``; at most 120 ms of it if nothing in it is louder than -50 dBFS.
    """
    kept = round(EDGE_SILENCE_S * sample_rate_hz)
    loud = np.flatnonzero(np.abs(samples) > 10 ** (SILENCE_DBFS / 20))
    if not loud.size:
        return samples[: 2 * kept]
    return samples[max(0, loud[0] - kept) : loud[-1] + 1 + kept]


def fade(samples: Samples, sample_rate_hz: int) -> Samples:
    """Return a copy that rises from and falls to zero within 5 ms, so that a cut does not click."""
    faded = samples.copy()
    length = min(round(FADE_S * sample_rate_hz), len(samples) // 2)
    ramp = np.linspace(0.0, 1.0, length, endpoint=False, dtype=np.float32)
    faded[:length] *= ramp
    faded[len(faded) - length :] *= ramp[::-1]
    return faded


class Joiner:
    """Joins the utterances of one job; what comes out, concatenated, is the whole sound."""

    def __init__(self, sample_rate_hz: int, pause_s: float) -> None:
        """Begin with no sound.

        Args:
            sample_rate_hz: Samples in a second.
            pause_s: Silence between two sounds where the text asks for none in particular.
        """
        self._rate_hz = sample_rate_hz
        self._between_s = pause_s
        self._pause_s = 0.0

    def add(self, samples: Samples, pause_after_s: float | None, *, last: bool = False) -> Samples:
        """Take the next utterance; return the pause before it and its trimmed, faded sound.

        Args:
            samples: ``[N]``; none if the utterance has no sound.
            pause_after_s: Seconds of silence that the text asks for after it; None leaves it to
                us, which is the ``pause_s`` of all.
            last: Nothing follows; the pause that the text asks for is then given at once.
        """
        parts = []
        if len(samples):
            parts = [
                self._silence(self._pause_s),
                fade(trim(samples, self._rate_hz), self._rate_hz),
            ]
            self._pause_s = self._between_s if pause_after_s is None else pause_after_s
        else:
            self._pause_s += pause_after_s or 0.0
        if last and pause_after_s is not None:
            parts.append(self._silence(self._pause_s))
        return np.concatenate([*parts, self._silence(0.0)])

    def _silence(self, seconds: float) -> Samples:
        return np.zeros(round(seconds * self._rate_hz), np.float32)

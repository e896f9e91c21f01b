"""What goes wrong with an utterance as a whole: it runs away, breaks off, sticks, or trails off."""

from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

Samples: TypeAlias = NDArray[np.float32]  # [N]

RUNAWAY_RATIO, CUT_SHORT_RATIO = 1.8, 0.5  # of the teacher's duration
TRAILING_SILENCE_S = 0.7
LOOP_PERIOD_MAX, LOOP_REPEATS = 75, 4
# A vowel or a pause may well hold one code for a few frames; only 0.4 s of it is a loop.
LOOP_FRAMES_MIN = 30
# Below the loudest window. At -40 dB a codec's noise hides silence that the teacher shows; at -30
# both end at the same place, within one window.
SILENCE_DB = -30.0
SILENCE_RMS = 1e-3  # and whatever lies below this is silence, however quiet the rest is
WINDOW_S = 0.02


@dataclass(frozen=True)
class Ending:
    """Which faults one recording has."""

    runaway: bool
    cut_short: bool
    silent: bool
    stuck: bool | None
    """None where only the samples are known."""

    @property
    def faulty(self) -> bool:
        """Whether there is any fault at all."""
        return self.runaway or self.cut_short or self.silent or bool(self.stuck)


def judge_ending(
    samples: Samples,
    teacher: Samples,
    sample_rate_hz: int,
    *,
    codes: NDArray[np.int64] | None = None,
    gave_up: bool | None = None,
    trimmed_s: float = 0.0,
) -> Ending:
    """Judge one recording ``[N]`` against the teacher's ``[N]`` of the same sentence.

    Durations are compared without the silence at both ends: some systems trim it and some do
    not. Without ``codes`` ``[T, K]`` loops are not looked for. Whether the system ``gave_up``
    is None if it does not say. Of the silence that it cut off at both ends, ``trimmed_s``, what
    the teacher leaves before the first word is taken to have been cut there, the rest at the
    end.
    """
    leading_s, spoken_s, trailing_s = find_speech(samples, sample_rate_hz)
    teacher_leading_s, teacher_spoken_s, _ = find_speech(teacher, sample_rate_hz)
    trimmed_at_end_s = max(0.0, trimmed_s - max(0.0, teacher_leading_s - leading_s))
    return Ending(
        runaway=spoken_s > RUNAWAY_RATIO * teacher_spoken_s,
        cut_short=spoken_s < CUT_SHORT_RATIO * teacher_spoken_s,
        silent=trailing_s + trimmed_at_end_s >= TRAILING_SILENCE_S - WINDOW_S / 2,
        stuck=gave_up if codes is None else bool(gave_up) or has_loop(codes[:, 0]),
    )


class Extent(NamedTuple):
    """How a recording divides into silence, speech and silence."""

    leading_s: float
    spoken_s: float
    trailing_s: float


def find_speech(samples: Samples, sample_rate_hz: int) -> Extent:
    """Return where speech begins and ends in ``samples`` ``[N]``, in windows of 20 ms.

    Where nothing is loud enough to be speech, all of it is the silence at the end.
    """
    window = int(WINDOW_S * sample_rate_hz)
    count = len(samples) // window
    if count == 0:
        return Extent(0.0, 0.0, 0.0)
    windows = samples[: count * window].reshape(count, window)
    rms = np.sqrt((windows.astype(np.float64) ** 2).mean(axis=1))
    threshold = max(SILENCE_RMS, float(rms.max()) * 10 ** (SILENCE_DB / 20))
    loud = np.flatnonzero(rms > threshold)
    if not loud.size:
        return Extent(0.0, 0.0, count * WINDOW_S)
    first, last = int(loud[0]), int(loud[-1])
    return Extent(first * WINDOW_S, (last + 1 - first) * WINDOW_S, (count - 1 - last) * WINDOW_S)


def has_loop(codes: NDArray[Any]) -> bool:
    """Return whether ``codes`` ``[T]`` of one level repeat the same piece over and over."""
    for period in range(1, min(LOOP_PERIOD_MAX, len(codes) // LOOP_REPEATS) + 1):
        frames = max(LOOP_REPEATS * period, LOOP_FRAMES_MIN)
        if _longest_run(codes[period:] == codes[:-period]) + period >= frames:
            return True
    return False


def _longest_run(flags: NDArray[np.bool_]) -> int:
    borders = np.flatnonzero(np.diff(np.concatenate(([False], flags, [False])).astype(np.int8)))
    return int((borders[1::2] - borders[::2]).max(initial=0))

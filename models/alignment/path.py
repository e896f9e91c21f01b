"""The likeliest monotonic path through the attention of frames to the symbols of a text."""

from typing import Final

import numpy as np
from numpy.typing import NDArray

SKIP_NATS: Final = 3.0
"""Cost of each symbol that the path leaves out: speech may drop a word, but rarely does."""

_FARTHEST: Final = 24  # symbols that one step may go on; the longest word or so
_LEAST: Final = 1e-4  # probability below which attention says nothing
_IMPOSSIBLE: Final = np.float32(-np.inf)


class MonotonicPath:
    """Assigns each frame a symbol, never an earlier one than the frame before (Viterbi).

    What a push returns is final, and the next goes on from there: the same pushes give the same
    path whether the frames come one by one or at once.
    """

    def __init__(self, symbols: int) -> None:
        self._symbols = symbols
        self._at: int | None = None

    def push(self, attention: NDArray[np.float32]) -> NDArray[np.int64]:
        """Return the symbols ``[n]`` of the next frames; rows of ``attention`` sum to about 1."""
        if not len(attention):
            return np.zeros(0, np.int64)
        scores = np.log(np.maximum(attention, _LEAST)).astype(np.float64)
        scores -= scores.max(1, keepdims=True)
        best = np.full(self._symbols, _IMPOSSIBLE, np.float64)
        best[self._at or 0] = 0.0
        came = np.empty((len(scores), self._symbols), np.int64)
        for frame, row in enumerate(scores):
            best, came[frame] = _advance(best)
            best += row
        at = int(best.argmax())
        path = np.empty(len(scores), np.int64)
        for frame in range(len(scores) - 1, -1, -1):
            path[frame] = at
            at = int(came[frame, at])
        self._at = int(path[-1])
        return path


def followed(attention: NDArray[np.float32]) -> float:
    """Return how well frames follow a text: their mean attention along the likeliest whole path.

    That path goes from the first symbol to the last, and from each frame to the next by one symbol
    or none. Where speech leaves words out or repeats them its frames attend to symbols that are off
    the path. Source: OAS, arXiv:2509.19852, which counts the symbol on the path alone; of two takes
    the attention to its neighbours as well told the one with fewer errors more often:
    docs/results/15-laboratory.md.

    Rows of ``attention`` ``[n, S]`` sum to about 1; 0 where there are fewer frames than symbols.
    """
    frames, symbols = attention.shape
    if frames < symbols:
        return 0.0
    scores = np.log(np.maximum(attention, _LEAST)).astype(np.float64)
    best = np.full(symbols, _IMPOSSIBLE, np.float64)
    best[0] = scores[0, 0]
    moved = np.zeros(scores.shape, bool)
    for frame in range(1, frames):
        moved[frame, 1:] = best[:-1] > best[1:]
        best[1:] = np.maximum(best[1:], best[:-1])
        best += scores[frame]
    at, total = symbols - 1, 0.0
    for frame in reversed(range(frames)):
        total += float(attention[frame, max(0, at - 1) : at + 2].sum())
        at -= int(moved[frame, at])
    return total / frames


def _advance(best: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Return the score ``[S]`` of each symbol after one step, and the symbol it came from."""
    after, came = best.copy(), np.arange(len(best))
    for step in range(1, min(_FARTHEST, len(best) - 1) + 1):
        moved = best[:-step] - SKIP_NATS * (step - 1)
        better = moved > after[step:]
        after[step:][better] = moved[better]
        came[step:][better] = np.flatnonzero(better)
    return after, came

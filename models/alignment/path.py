"""The likeliest monotonic path through the attention of frames to the symbols of a text."""

from collections.abc import Sequence
from typing import Final, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

SKIP_NATS: Final = 3.0
"""Cost of each symbol that the path leaves out: speech may drop a word, but rarely does."""

_LEAST: Final = 1e-4  # probability below which attention says nothing
_IMPOSSIBLE: Final = np.float32(-np.inf)


class PathFrame(NamedTuple):
    """What a path knows of a frame."""

    scores: NDArray[np.float64]  # ``[W]`` nats of the best path that ends at each symbol
    at: int  # the likeliest symbol
    behind: float  # see `MonotonicPath.behind`


class MonotonicPath:
    """Assigns each frame a symbol, never an earlier one than the frame before (Viterbi).

    How likely each symbol is at a frame follows from that frame and those before it, whether they
    come one by one or at once; `rewind` forgets the newest.

    Attributes:
        at: The likeliest symbol of each frame, as it was judged when the frame came.
        behind: Of each frame its attention to the symbol that it attends to most, if that lies
            more than one before the likeliest; else 0.
    """

    def __init__(self, symbols: int) -> None:
        self._symbols = symbols
        # ``[W]`` of each frame: the score in nats of the best path that ends at each symbol
        self._scores: list[NDArray[np.float64]] = []
        self.at: list[int] = []
        self.behind: list[float] = []
        self._last_symbol = 0  # the last symbol that `push` has returned

    def __len__(self) -> int:
        """Count the frames."""
        return len(self._scores)

    def push(self, attention: NDArray[np.float32]) -> NDArray[np.int64]:
        """Take the next frames; return their symbols ``[n]``, by frames up to the last of them.

        Rows of ``attention`` ``[n, S]`` sum to about 1.
        """
        begin = len(self)
        for (frame,) in self.ahead([self], attention[:, None]):
            self.append(frame)
        path = np.maximum(self.walked(begin), self._last_symbol)
        self._last_symbol = int(path[-1]) if len(path) else self._last_symbol
        return path

    def walked(self, begin: int = 0) -> NDArray[np.int64]:
        """Return the symbols ``[n]`` of the frames from one on, judged by all frames so far."""
        path = np.zeros(len(self) - begin, np.int64)
        for frame in reversed(range(begin, len(self))):
            before = self._scores[frame]
            if frame + 1 < len(self):
                reached = int(path[frame - begin + 1])
                skipped = np.maximum(reached - 1 - np.arange(reached + 1), 0)
                before = before[: reached + 1] - SKIP_NATS * skipped
            path[frame - begin] = min(int(before.argmax()), self._symbols - 1)
        return path

    def rewind(self, frames: int) -> None:
        """Keep the first frames alone."""
        del self._scores[frames:], self.at[frames:], self.behind[frames:]

    def grow(self, symbols: int, moved: NDArray[np.int64], width: int) -> None:
        """Go on in a text that has changed behind what was spoken, of so many symbols.

        ``moved`` ``[S]``, ascending, says where each symbol is now; what is new was not reached.
        ``width`` is W of the attention to come.
        """
        begins = np.flatnonzero(np.diff(moved, prepend=-1))
        for frame, scores in enumerate(self._scores):
            now = np.full(width, _IMPOSSIBLE, np.float64)
            now[moved[begins]] = np.maximum.reduceat(scores[: len(moved)], begins)
            self._scores[frame] = now
        self.at = [int(moved[at]) for at in self.at]
        self._last_symbol = int(moved[self._last_symbol])
        self._symbols = symbols

    def copy(self) -> Self:
        """Return a path that goes on by itself."""
        other = type(self)(self._symbols)
        other._scores = self._scores.copy()
        other._last_symbol = self._last_symbol
        other.at = self.at.copy()
        other.behind = self.behind.copy()
        return other

    def _newest(self, width: int) -> NDArray[np.float64]:
        if self._scores:
            return self._scores[-1]
        first = np.full(width, _IMPOSSIBLE, np.float64)
        first[0] = 0.0
        return first

    def append(self, frame: PathFrame) -> None:
        """Take a frame of `ahead` that follows the newest."""
        self._scores.append(frame.scores)
        self.at.append(min(frame.at, self._symbols - 1))
        self.behind.append(frame.behind)

    @staticmethod
    def ahead(
        paths: "Sequence[MonotonicPath]", attention: NDArray[np.float32]
    ) -> list[list[PathFrame]]:
        """Return the next n frames, of each of B paths, whose paths do not change.

        ``attention`` is ``[n, B, W]``: a path's symbols come first, all behind them is 0. W must be
        the same at all frames of a path. What is returned for a frame is the same whatever n is.
        """
        width = attention.shape[-1]
        scores = np.log(np.maximum(attention, _LEAST)).astype(np.float64)
        scores -= scores.max(-1, keepdims=True)
        # A step from symbol i to j costs SKIP_NATS (j - i - 1), so the best i is that of the
        # largest score + SKIP_NATS i.
        costs = SKIP_NATS * np.arange(width)
        best = np.stack([path._newest(width) for path in paths])
        for frame in scores:
            stepped = np.maximum.accumulate(best + costs, 1)[:, :-1] - costs[:-1]
            best = best.copy()
            np.maximum(best[:, 1:], stepped, out=best[:, 1:])
            best += frame
            frame[:] = best
        at = scores.argmax(-1)
        attended = attention.argmax(-1)
        behind = np.where((attended > 0) & (attended < at - 1), attention.max(-1), 0.0)
        return [
            [PathFrame(*one) for one in zip(*frame, strict=True)]
            for frame in zip(scores, at.tolist(), behind.tolist(), strict=True)
        ]


def followed(attention: NDArray[np.float32]) -> float:
    """Return how well frames follow a text: their mean attention along the likeliest whole path.

    That path goes from the first symbol to the last, and from each frame to the next by one symbol
    or none. Where speech leaves words out or repeats them its frames attend to symbols that are off
    the path. Source: OAS, arXiv:2509.19852, which counts the symbol on the path alone; of two takes
    the attention to its neighbours as well told the one with fewer errors more often:
    docs/results/studies.md.

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
    at = symbols - 1
    total = 0.0
    for frame in reversed(range(frames)):
        total += float(attention[frame, max(0, at - 1) : at + 2].sum())
        at -= int(moved[frame, at])
    return total / frames

"""Timing of a decoding loop at fixed numbers of codes."""

from time import perf_counter

MARKS = (250, 500, 750)

Marks = dict[int, float]
"""Seconds from the first code to each number of codes of `MARKS`."""


class MarkTimer:
    """Records the time at each mark."""

    def __init__(self) -> None:
        self.marks: Marks = {}
        self._started_s = 0.0

    def tick(self, sampled: int) -> None:
        """Call once for every code, with the number of codes so far."""
        if sampled == 1:
            self._started_s = perf_counter()
        elif sampled in MARKS:
            self.marks[sampled] = perf_counter() - self._started_s

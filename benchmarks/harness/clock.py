"""When a decoding loop got how far."""

from time import perf_counter

MARKS = (250, 500, 750)

Marks = dict[int, float]
"""Seconds from the first code to each number of codes."""


class Clock:
    """Notes the time when a loop reaches a mark."""

    def __init__(self) -> None:
        self.marks: Marks = {}
        self._started_s = 0.0

    def tick(self, drawn: int) -> None:
        """Note that ``drawn`` codes exist."""
        if drawn == 1:
            self._started_s = perf_counter()
        elif drawn in MARKS:
            self.marks[drawn] = perf_counter() - self._started_s

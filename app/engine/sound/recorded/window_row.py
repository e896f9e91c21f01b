"""Rows of recorded windows and of recorded chunks of the codec, as numbers."""

from collections.abc import Sequence
from enum import IntEnum, auto
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from app.engine.sound.recorded.row import Parts
from models.whole_passes import NumberedPrefix, padded
from samplers.nar import NarRow


class Number(IntEnum):
    """The numbers at the beginning of a window's row."""

    COUNT = 0  # frames
    FRAME = auto()  # index of the first of them in the utterance
    LENGTH = auto()  # positions of the sequence
    OWNER = auto()  # the row whose codes it is fed
    PARTNER = auto()  # the row that guides it; itself: none
    STRENGTH = auto()  # of guidance, a fraction
    RESCALE = auto()  # likewise


class WindowRow(NamedTuple):
    """The next window of one utterance, with all frames that its passes see.

    Attributes:
        frame: Index of the first frame.
        given: ``[n, K]`` int64, codes that are not drawn, level 0 among them; -1 elsewhere.
        prompt: ``[P, K]`` int64 codes of the voice.
        knobs: Of each finer level.
        prefixes: One, or with guidance two.
        strength: Of guidance.
        rescale: Of guidance.
    """

    frame: int
    given: NDArray[np.int64]
    prompt: NDArray[np.int64]
    knobs: Sequence[NarRow]
    prefixes: Sequence[NumberedPrefix]
    strength: float = 1.0
    rescale: float = 0.0

    @property
    def length(self) -> int:
        """Positions of the longest sequence."""
        return len(self.given) + max(len(one.marks) for one in self.prefixes)


class WindowLayout(Parts):
    """Where each part of a window's row lies."""

    def __init__(self, *, levels: int, columns: int) -> None:
        """Lay out rows.

        Args:
            levels: K, level 0 included.
            columns: Positions of a sequence.
        """
        super().__init__(len(Number), levels, (2, columns), (columns, levels))
        self._columns = columns

    def places(self, rows: Tensor) -> Tensor:
        """Return a view ``[B, 2, columns]``: marks and positions."""
        return self.view(rows, 1)

    def codes(self, rows: Tensor) -> Tensor:
        """Return a view ``[B, columns, levels]``: of frames and prompt; -1: to be drawn."""
        return self.view(rows, 2)

    def idle(self, rows: int) -> NDArray[np.int64]:
        """Return ``[rows, width]``: rows of no utterance."""
        table = np.zeros((rows, self.width), np.int64)
        table[:, Number.LENGTH] = 1
        table[:, Number.OWNER] = table[:, Number.PARTNER] = range(rows)
        return table

    def write(self, table: NDArray[np.int64], windows: Sequence[WindowRow]) -> list[int]:
        """Write windows to the first of some idle rows; return the row of each.

        The unconditional row of a window follows its own.
        """
        rows, row = list[int](), 0
        for window in windows:
            rows.append(row)
            count = len(window.given)
            for number, prefix in enumerate(window.prefixes):
                own = table[row + number]
                own[Number.COUNT], own[Number.FRAME], own[Number.OWNER] = count, window.frame, row
                own[Number.LENGTH] = count + len(prefix.marks)
                self.of(own, 1)[:] = padded(prefix, count, window.frame, self._columns)
                self._write_codes(own, window, prefix)
            own = table[row]
            fractions = own.view(np.float64)
            fractions[Number.STRENGTH], fractions[Number.RESCALE] = window.strength, window.rescale
            self.write_knobs(own, window.knobs)
            row += len(window.prefixes)
            own[Number.PARTNER] = row - 1
        return rows

    def _write_codes(
        self, row: NDArray[np.int64], window: WindowRow, prefix: NumberedPrefix
    ) -> None:
        codes, count = self.of(row, 2), len(window.given)
        codes[:count] = window.given
        if prefix.prompted.any():
            codes[count : count + len(prefix.marks)][prefix.prompted] = window.prompt

"""A row of a recorded chunk: what the host tells the device about one sequence, as numbers.

Fractions are the bits of float64, so that one table, and one copy, holds everything.
"""

from collections.abc import Sequence
from enum import IntEnum, auto
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from samplers.nar import NarRow


class Number(IntEnum):
    """The numbers at the beginning of a row."""

    STREAM = 0  # its row of the codec's states
    BEGINS = auto()  # whether its stream begins with this chunk
    COUNT = auto()  # frames that are kept
    FRAME = auto()  # index of the first of them in the utterance
    LENGTH = auto()  # positions that the sequence holds
    START = auto()  # position id of the first frame
    OWNER = auto()  # the row whose codes it is fed
    PARTNER = auto()  # the row that guides it; itself: none
    LEVELS = auto()  # levels of the codes that are heard
    STRENGTH = auto()  # of guidance, a fraction
    RESCALE = auto()  # likewise


class Condition(NamedTuple):
    """One sequence of a chunk in all levels: the text's, or the unconditional one.

    Attributes:
        start: Position id of the first new frame.
        length: Positions that it holds.
        pages: Of each level, with room for the new frames.
    """

    start: int
    length: int
    pages: Sequence[Sequence[int]]


class ChunkRow(NamedTuple):
    """The next chunk of one utterance.

    Attributes:
        stream: Its row of the codec's states.
        frame: Index of its first frame; 0 begins the stream.
        given: ``[n, K]`` int64, codes that are not drawn, level 0 among them; -1 elsewhere.
        levels: How many levels are heard.
        knobs: Of each finer level.
        conditions: One, or with guidance two.
        strength: Of guidance.
        rescale: Of guidance.
    """

    stream: int
    frame: int
    given: NDArray[np.int64]
    levels: int
    knobs: Sequence[NarRow]
    conditions: Sequence[Condition]
    strength: float = 1.0
    rescale: float = 0.0


class Parts:
    """Where each part of a row lies: some numbers, the knobs of each finer level, then tables.

    Attributes:
        width: Numbers of a row.
    """

    def __init__(self, numbers: int, levels: int, *shapes: tuple[int, int]) -> None:
        """Lay out rows.

        Args:
            numbers: How many.
            levels: K, level 0 included.
            shapes: Of the tables, which are parts 1, 2...
        """
        self._shapes = ((levels - 1, len(NarRow._fields)), *shapes)
        ends = np.cumsum([numbers, *(a * b for a, b in self._shapes)]).tolist()
        self._slices = [slice(*both) for both in pairwise(ends)]
        self.width: int = ends[-1]

    def view(self, rows: Tensor, part: int) -> Tensor:
        """Return a table of some rows, ``[B, *shape]``."""
        return rows[:, self._slices[part]].view(-1, *self._shapes[part])

    def of(self, row: NDArray[np.int64], part: int) -> NDArray[np.int64]:
        """Return a table of one row on the host, a view."""
        return row[self._slices[part]].reshape(self._shapes[part])

    def knobs(self, rows: Tensor) -> Tensor:
        """Return a view ``[B, levels - 1, len(NarRow)]``; fractions are bits."""
        return self.view(rows, 0)

    def write_knobs(self, row: NDArray[np.int64], knobs: Sequence[NarRow]) -> None:
        """Write how each finer level is drawn."""
        for level, own in enumerate(knobs):
            numbers = self.of(row, 0)[level]
            fractions = numbers.view(np.float64)
            for place, number in enumerate(own):
                (fractions if isinstance(number, float) else numbers)[place] = number


class RowLayout(Parts):
    """Where each part of a chunk's row lies."""

    def __init__(self, *, levels: int, frames: int, pages: int) -> None:
        """Lay out rows.

        Args:
            levels: K, level 0 included.
            frames: Of the longest chunk.
            pages: Of the longest sequence, in one level.
        """
        super().__init__(len(Number), levels, (frames, levels), (levels - 1, pages))

    def given(self, rows: Tensor) -> Tensor:
        """Return a view ``[B, frames, levels]``."""
        return self.view(rows, 1)

    def pages(self, rows: Tensor) -> Tensor:
        """Return a view ``[B, levels - 1, pages]``."""
        return self.view(rows, 2)

    def idle(self, rows: int, *, stream: int, page: int) -> NDArray[np.int64]:
        """Return ``[rows, width]``: rows of no utterance.

        Args:
            rows: How many.
            stream: A row of the codec's states that nobody uses.
            page: A page that nobody uses.
        """
        table = np.zeros((rows, self.width), np.int64)
        table[:, Number.STREAM], table[:, Number.BEGINS], table[:, Number.COUNT] = stream, 1, 1
        table[:, Number.OWNER] = table[:, Number.PARTNER] = range(rows)
        table[:, self._slices[2]] = page
        return table

    def write(self, table: NDArray[np.int64], chunks: Sequence[ChunkRow]) -> list[int]:
        """Write chunks to the first of some idle rows; return the row of each, without guidance's.

        The unconditional row of a chunk follows its own.
        """
        rows, row = list[int](), 0
        for chunk in chunks:
            rows.append(row)
            self._write_chunk(table[row], chunk)
            for number, condition in enumerate(chunk.conditions):
                own = table[row + number]
                own[Number.COUNT], own[Number.OWNER] = len(chunk.given), row
                own[Number.LENGTH], own[Number.START] = condition.length, condition.start
                pages = self.of(own, 2)
                for level, those in enumerate(condition.pages):
                    pages[level, : len(those)] = those
            row += len(chunk.conditions)
            table[rows[-1], Number.PARTNER] = row - 1
        return rows

    def _write_chunk(self, row: NDArray[np.int64], chunk: ChunkRow) -> None:
        row[Number.STREAM], row[Number.BEGINS] = chunk.stream, chunk.frame == 0
        row[Number.FRAME], row[Number.LEVELS] = chunk.frame, chunk.levels
        fractions = row.view(np.float64)
        fractions[Number.STRENGTH], fractions[Number.RESCALE] = chunk.strength, chunk.rescale
        self.write_knobs(row, chunk.knobs)
        given = self.of(row, 1)
        given[: len(chunk.given)] = chunk.given
        given[len(chunk.given) :] = chunk.given[-1]  # padding, of which nothing is heard


FRACTIONS = frozenset({"temperature", "top_p", "log_min_p"})
"""Fields of `NarRow` that are fractions."""

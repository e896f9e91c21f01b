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


class RowLayout:
    """Where each part of a row lies.

    Attributes:
        width: Numbers of a row.
    """

    def __init__(self, *, levels: int, frames: int, pages: int) -> None:
        """Lay out rows.

        Args:
            levels: K, level 0 included.
            frames: Of the longest chunk.
            pages: Of the longest sequence, in one level.
        """
        self._shapes = (levels - 1, len(NarRow._fields)), (frames, levels), (levels - 1, pages)
        ends = np.cumsum([len(Number), *(a * b for a, b in self._shapes)]).tolist()
        self._parts = [slice(*both) for both in pairwise(ends)]
        self.width: int = ends[-1]

    def knobs(self, rows: Tensor) -> Tensor:
        """Return a view ``[B, levels - 1, len(NarRow)]``; fractions are bits."""
        return self._part(rows, 0)

    def given(self, rows: Tensor) -> Tensor:
        """Return a view ``[B, frames, levels]``."""
        return self._part(rows, 1)

    def pages(self, rows: Tensor) -> Tensor:
        """Return a view ``[B, levels - 1, pages]``."""
        return self._part(rows, 2)

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
        table[:, self._parts[2]] = page
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
                pages = own[self._parts[2]].reshape(self._shapes[2])
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
        for level, knobs in enumerate(chunk.knobs):
            start = self._parts[0].start + level * len(NarRow._fields)
            for place, number in enumerate(knobs, start):
                (fractions if isinstance(number, float) else row)[place] = number
        given = row[self._parts[1]].reshape(self._shapes[1])
        given[: len(chunk.given)] = chunk.given
        given[len(chunk.given) :] = chunk.given[-1]  # padding, of which nothing is heard

    def _part(self, rows: Tensor, part: int) -> Tensor:
        return rows[:, self._parts[part]].view(-1, *self._shapes[part])


FRACTIONS = frozenset({"temperature", "top_p", "log_min_p"})
"""Fields of `NarRow` that are fractions."""

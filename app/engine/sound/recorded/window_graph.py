"""Windows of finer levels in one recorded function, for models whose frames all see each other.

A window is all frames that can be drawn at once, with those beside them that are seen: by default
the whole utterance, at its end. A row is one sequence of one utterance. Nothing is kept between two
windows; what they drew is decoded by `CodecGraph`, chunk by chunk, as its codes are known.
"""

from collections.abc import Callable, Sequence
from itertools import product
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from app.engine.sound.recorded.codec_graph import CodecGraph
from app.engine.sound.recorded.codec_streams import STREAMS, CodecStreams
from app.engine.sound.recorded.drawing import LevelDraw
from app.engine.sound.recorded.window_row import Number, WindowLayout, WindowRow
from models.checkpoints import SpeechModel
from models.cuda.graphs import WARM_UPS, Play, Record
from models.cuda.transfers import Download, Upload
from models.whole_passes import WholePasses

ROWS: Final = (1, 2, 4, 8, 16)
"""Rows of a recorded window. Unlike those of a chunk, a row that is not used costs as much as one
that is: so many positions are bound by arithmetic."""

COLUMNS: Final = (256, 512, 768, 1024, 1536, 2048, 3072, 4096)
"""Positions of a row, prefix and frames."""

POSITIONS: Final = 8 * 1024
"""Rows times columns at most: more would not be quicker together."""

CHUNK_ROWS: Final = (1, 4, 16)
"""Chunks of the codec at once."""

_DEPTH: Final = 2  # of windows on their way


class WindowGraph:
    """The recorded windows. One thread only.

    Attributes:
        columns: The most positions of a window.
        most: The most rows of a window, and chunks of the codec.
        streams: What the codec remembers of utterances.
        codec: Decodes what was drawn.
    """

    @torch.inference_mode()
    def __init__(
        self,
        speech: SpeechModel,
        *,
        record: Record,
        rows: Sequence[int] = ROWS,
        columns: Sequence[int] = COLUMNS,
        streams: int = STREAMS,
        warm_ups: int = WARM_UPS,
    ) -> None:
        """Allocate everything, and record all functions.

        Args:
            speech: On the device and in the dtype to use; its NAR mask is `full`.
            record: Records functions.
            rows: Numbers of rows to choose from, ascending.
            columns: Numbers of positions to choose from, ascending.
            streams: Utterances that may be under way.
            warm_ups: How often each function is called first.
        """
        model, device = speech.model, speech.model.separator.device
        levels = model.config.levels
        self._levels, self._codebooks = levels, speech.codec.quantizer.codebooks[:levels]
        self._rows, self._columns = rows, columns
        self.most, self.columns = rows[-1], columns[-1]
        self._passes = WholePasses(model)
        self._layouts = {size: WindowLayout(levels=levels, columns=size) for size in columns}
        self._uploads: dict[tuple[int, int], Upload] = {}
        self._downloads: dict[tuple[int, int], Download] = {}
        self._plays: dict[tuple[int, int, bool], Play] = {}
        # Largest first: the others then find all the memory that they need in the shared pool.
        for size in product(reversed(rows), reversed(columns)):
            if self.holds(*size):
                idle = self._layouts[size[1]].idle(size[0])
                table = torch.zeros(idle.shape, dtype=torch.int64, device=device)
                results = torch.zeros(*size, levels, dtype=torch.int32, device=device)
                upload = self._uploads[size] = Upload(table, _DEPTH)
                self._downloads[size] = Download(results, _DEPTH)
                upload.send(idle)
                for light in (False, True):
                    run = self._function(table, results, size[1], light=light)
                    self._plays[*size, light] = record(run, warm_ups=warm_ups)
        self.streams = CodecStreams(speech, streams)
        own = CHUNK_ROWS if self.most >= CHUNK_ROWS[-1] else rows
        self.codec = CodecGraph(speech, self.streams, record=record, rows=own, warm_ups=warm_ups)

    def holds(self, rows: int, columns: int) -> bool:
        """Return whether so many rows of so many positions are recorded."""
        if rows > self.most or columns > self.columns:
            return False
        rows, columns = self._size(rows, columns)
        return rows == self._rows[0] or rows * columns <= POSITIONS

    def filled_up(self, columns: int) -> int:
        """Return the positions of the recorded window that holds so many."""
        return next(size for size in self._columns if size >= columns)

    def draw(self, windows: Sequence[WindowRow], *, light: bool) -> list[NDArray[np.int64]]:
        """Draw some windows, and wait for them.

        Args:
            windows: Of utterances of their own; `holds` them.
            light: Whether all are greedy without guidance.

        Returns:
            The codes ``[n, K]`` of each.
        """
        used = sum(len(window.prefixes) for window in windows)
        size = self._size(used, max(window.length for window in windows))
        layout = self._layouts[size[1]]
        host = layout.idle(size[0])
        own = layout.write(host, windows)
        self._uploads[size].send(host)
        self._plays[*size, light]()
        download = self._downloads[size]
        found = download.wait(download.fetch())
        return [
            found[row, : len(window.given)].astype(np.int64)
            for row, window in zip(own, windows, strict=True)
        ]

    def close(self) -> None:
        """Forget all functions; nothing can be made any more."""
        self._plays.clear()
        self.codec.close()

    def _size(self, rows: int, columns: int) -> tuple[int, int]:
        return next(size for size in self._rows if size >= rows), self.filled_up(columns)

    def _function(
        self, table: Tensor, results: Tensor, columns: int, *, light: bool
    ) -> Callable[[], None]:
        """Return the windows of all rows of a table, to be recorded."""
        passes, layout, levels = self._passes, self._layouts[columns], self._levels
        fractions = table.view(torch.float64)
        own = torch.arange(columns, device=table.device)
        marks, positions = layout.places(table).unbind(1)

        def number(column: Number) -> Tensor:
            return table[:, column]

        drawing = LevelDraw(
            layout.knobs(table), layout.knobs(fractions), number(Number.FRAME),
            number(Number.PARTNER), fractions[:, Number.STRENGTH], fractions[:, Number.RESCALE],
            self._codebooks, light,
        )  # fmt: skip

        def window() -> None:
            owner, frames = number(Number.OWNER), own < number(Number.COUNT)[:, None]
            placed = passes.layout(positions, number(Number.LENGTH))
            given = layout.codes(table)
            codes = given.clamp(min=0)
            for level in range(1, levels):
                x = passes.embed(marks, codes, frames, level)
                logits = passes.logits(x, placed, level)
                told = given[..., level]
                drawn = drawing.draw(level, logits).index_select(0, owner)
                codes[..., level].copy_(torch.where(told >= 0, told, drawn))
            results.copy_(codes)

        return window

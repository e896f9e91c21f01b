"""Chunks of sound in one recorded function: the finer levels and the codec of several utterances.

A row is one sequence of one utterance; its keys and values are pages of the pool that eager passes
use, too, and what the codec remembers of it is a row of a table. What the host decides goes up as
one table of numbers before a chunk, codes and samples come back as one after it. Everything is
recorded when the graph is made, one function for each number of rows, of frames, of columns, and
each kind: *light* has greedy levels without guidance, *full* has everything.
"""

from collections.abc import Callable, Sequence
from itertools import product
from typing import Final, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from app.engine.job import Samples
from app.engine.sound.chunks import chunk_lengths
from app.engine.sound.recorded.codec_streams import STREAMS, CodecStreams
from app.engine.sound.recorded.drawing import LevelDraw
from app.engine.sound.recorded.row import ChunkRow, Number, RowLayout
from models.checkpoints import SpeechModel
from models.cuda.graphs import WARM_UPS, Play, Record
from models.cuda.transfers import Download, Upload
from models.stack.paged_cache import PAGE, PagePool

ROWS: Final = (1, 4, 16)
"""Rows of a recorded chunk. Few numbers, as up to some 16 rows the weights take most of the time to
read: a row that is not used costs next to nothing."""

COLUMNS: Final = (512, 1024, 2048, 4096)
"""Positions attended over; utterances that may become longer are not recorded."""

POSITIONS: Final = 16 * 1024
"""Rows times columns at most: the gathered keys and values of a layer take memory."""

_DEPTH: Final = 2  # of chunks on their way


class ChunkSound(NamedTuple):
    """What became of a chunk.

    Attributes:
        codes: ``[n, K]`` int64, of which the utterance's own levels count.
        samples: ``[N]``.
    """

    codes: NDArray[np.int64]
    samples: Samples


class VoiceGraph:
    """The recorded chunks over one pool of pages. One thread only.

    Attributes:
        frames: The numbers of frames of a chunk; a last one is filled up.
        columns: The most positions of an utterance.
        most: The most rows of a chunk.
        streams: What the codec remembers of utterances.
        extend: Extends sequences of the pool.
    """

    @torch.inference_mode()
    def __init__(
        self,
        speech: SpeechModel,
        pool: PagePool,
        *,
        record: Record,
        rows: Sequence[int] = ROWS,
        columns: Sequence[int] = COLUMNS,
        streams: int = STREAMS,
        warm_ups: int = WARM_UPS,
    ) -> None:
        """Allocate everything, and record all functions.

        Args:
            speech: On the device and in the dtype to use; its NAR mask hides later blocks.
            pool: Of its keys and values.
            record: Records functions.
            rows: Numbers of rows to choose from, ascending.
            columns: Numbers of positions to choose from, ascending, multiples of `PAGE`.
            streams: Utterances that may be under way.
            warm_ups: How often each function is called first.
        """
        model, codec, device = speech.model, speech.codec, speech.model.separator.device
        config = model.config
        self._model, self._codec = model, codec
        self._rows, self._columns = rows, columns
        self.most, self.columns = rows[-1], columns[-1]
        self.frames = chunk_lengths(config.block_frames)
        own = torch.arange(self.frames[-1], device=device)
        each = 1 if config.nar_mask == "causal" else config.block_frames
        self._reach = (own // each + 1) * each
        self.extend = model.transformer.fixed_extend(pool)
        self._layout = RowLayout(
            levels=config.levels, frames=self.frames[-1], pages=columns[-1] // PAGE
        )
        self.streams = CodecStreams(speech, streams)
        self._idle = self._layout.idle(rows[-1], stream=self.streams.unused, page=pool.padding)
        self._host = self._idle.copy()
        self._table = torch.zeros(self._host.shape, dtype=torch.int64, device=device)
        self._upload = Upload(self._table, _DEPTH)
        self._upload.send(self._idle)
        self._hop = codec.config.hop
        frame = config.levels + self._hop
        self._results = {
            size: torch.zeros(size[0], size[1] * frame, device=device)
            for size in product(rows, self.frames)
        }
        self._downloads = {size: Download(own, _DEPTH) for size, own in self._results.items()}
        self._plays: dict[tuple[int, int, int, bool], Play] = {}
        # Largest first: the others then find all the memory that they need in the shared pool.
        for size in product(reversed(columns), reversed(rows), reversed(self.frames)):
            if self.holds(size[1], size[0]):
                for light in (False, True):
                    run = self._function(size[1], size[2], size[0], light=light)
                    play = record(run, warm_ups=warm_ups)
                    self._plays[size[1], size[2], size[0], light] = play

    def holds(self, rows: int, columns: int) -> bool:
        """Return whether so many rows of so many positions are recorded."""
        if rows > self.most or columns > self.columns:
            return False
        rows, columns = self._size(rows, columns)
        return rows == self._rows[0] or rows * columns <= POSITIONS

    def make(self, chunks: Sequence[ChunkRow], frames: int, *, light: bool) -> list[ChunkSound]:
        """Make some chunks, and wait for them.

        Args:
            chunks: Of utterances of their own; `holds` them.
            frames: One of `frames`, and none of them has more.
            light: Whether all are greedy without guidance.
        """
        used = sum(len(chunk.conditions) for chunk in chunks)
        longest = max(one.length for chunk in chunks for one in chunk.conditions) + frames
        rows, columns = self._size(used, min(longest, self.columns))
        self._host[:] = self._idle
        own = self._layout.write(self._host, chunks)
        self._upload.send(self._host)
        self._plays[rows, frames, columns, light]()
        download = self._downloads[rows, frames]
        found, levels = download.wait(download.fetch()), self._model.config.levels
        codes = found[:, : frames * levels].astype(np.int64).reshape(rows, frames, levels)
        return [
            ChunkSound(
                codes[row, : len(chunk.given)],
                found[row, frames * levels :][: len(chunk.given) * self._hop].copy(),
            )
            for row, chunk in zip(own, chunks, strict=True)
        ]

    def close(self) -> None:
        """Forget all functions; nothing can be made any more."""
        self._plays.clear()

    def _size(self, rows: int, columns: int) -> tuple[int, int]:
        return (
            next(size for size in self._rows if size >= rows),
            next(size for size in self._columns if size >= columns),
        )

    def _function(self, rows: int, frames: int, columns: int, *, light: bool) -> Callable[[], None]:
        """Return the chunk of the first rows, to be recorded."""
        model, layout = self._model, self._layout
        table, results = self._table[:rows], self._results[rows, frames]
        fractions = table.view(torch.float64)
        reach = self._reach[:frames]
        pages = layout.pages(table)[..., : columns // PAGE]
        levels = model.config.levels
        every = torch.arange(levels, device=table.device)

        def number(column: Number) -> Tensor:
            return table[:, column]

        drawing = LevelDraw(
            layout.knobs(table), layout.knobs(fractions), number(Number.FRAME),
            number(Number.PARTNER), fractions[:, Number.STRENGTH], fractions[:, Number.RESCALE],
            self._codec.quantizer.codebooks[:levels], light,
        )  # fmt: skip

        def chunk() -> None:
            owner = number(Number.OWNER)
            placed = self.extend.layout(
                number(Number.START), number(Number.LENGTH), number(Number.COUNT), reach, columns
            )
            given = layout.given(table)[:, :frames].index_select(0, owner)
            codes = given.clone()
            for level in range(1, levels):
                hidden = self.extend.run(
                    model.embed_response(codes.flatten(0, 1), level), pages[:, level - 1], placed
                )
                logits = model.logits(hidden, level).view(rows, frames, -1)
                told = given[..., level]
                drawn = drawing.draw(level, logits).index_select(0, owner)
                codes[..., level].copy_(torch.where(told >= 0, told, drawn))
            heard = every < number(Number.LEVELS)[:, None, None]
            samples = self.streams.sound(
                codes, heard, number(Number.STREAM), number(Number.BEGINS) > 0
            )
            results[:, : frames * levels].copy_(codes.flatten(1))
            results[:, frames * levels :].copy_(samples)

        return chunk

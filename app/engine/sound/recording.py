"""Chunks of several utterances in one recorded function: finer levels and codec.

A row is one sequence of one utterance; its keys and values are pages of the pool that passes which
are not recorded use, too, and what the codec remembers of it is a row of a table. What the host
decides goes up as one table of numbers before a chunk, codes and samples come back as one after it.
Everything is recorded at the start, one function for each number of rows, of frames, and each kind:
*light* has greedy levels without guidance, *full* has everything.
"""

from collections.abc import Callable, Sequence
from enum import IntEnum, auto
from itertools import pairwise, product
from time import perf_counter
from typing import Final, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from app.engine.sound import drawing
from app.engine.sound.chunks import chunk_lengths
from app.engine.sound.drawing import ChunkRows, draw_chunk
from app.engine.sound.levels import CachedLevels
from app.engine.sound.utterance import SoundUtterance, finite
from models.checkpoints import SpeechModel
from models.codecs.streaming import StreamTable
from models.cuda.graphs import WARM_UPS, Play, Record
from models.cuda.transfers import Download, Upload
from models.recorded_prefixes import RecordedPrefixes
from models.stack.paged_cache import PAGE, OutOfPages, PagePool
from samplers.nar import NarRow

POSITIONS: Final = 16 * 1024
"""Rows times columns at most where torch's operators attend: they gather a layer's keys."""

_DEPTH: Final = 2  # of chunks on their way


class ChunkSizes(NamedTuple):
    """What is recorded.

    Attributes:
        rows: Numbers of rows, ascending. Few: up to some 16 rows the weights take most of the time
            to read, and a row that is not used costs next to nothing.
        streams: Utterances that may be under way; what the codec remembers of one is some 40 kB.
    """

    rows: Sequence[int] = (1, 4, 16)
    columns: int = 4096  # the most positions of an utterance, a multiple of `PAGE`
    streams: int = 256


class Number(IntEnum):
    """The numbers at the beginning of a row; fractions are the bits of float64."""

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


class RowLayout:
    """Where each part of a row lies: numbers, the knobs of each finer level, codes, pages."""

    def __init__(self, *, levels: int, frames: int, pages: int) -> None:
        self._shapes = (
            (levels - 1, len(NarRow._fields)), (frames, levels), (levels - 1, pages),
        )  # fmt: skip
        ends = np.cumsum([len(Number), *(a * b for a, b in self._shapes)]).tolist()
        self._slices = [slice(*both) for both in pairwise(ends)]
        self.width: int = ends[-1]

    def chunk(self, rows: Tensor, frames: int) -> ChunkRows:
        """Return the part of some rows on the device that says what is drawn, as views."""
        fractions = rows.view(torch.float64)
        return ChunkRows(
            self._view(rows, 1)[:, :frames], self._view(rows, 0), rows[:, Number.FRAME],
            rows[:, Number.OWNER], rows[:, Number.PARTNER],
            fractions[:, Number.STRENGTH : Number.RESCALE + 1],
        )  # fmt: skip

    def pages(self, rows: Tensor) -> Tensor:
        """Return a view ``[B, levels - 1, pages]``."""
        return self._view(rows, 2)

    def idle(self, rows: int, *, stream: int, page: int) -> NDArray[np.int64]:
        """Return ``[rows, width]`` of no utterance, with a stream and a page of nobody."""
        table = np.zeros((rows, self.width), np.int64)
        table[:, Number.STREAM], table[:, Number.BEGINS], table[:, Number.COUNT] = stream, 1, 1
        table[:, Number.OWNER] = table[:, Number.PARTNER] = range(rows)
        table[:, self._slices[2]] = page
        return table

    def write(self, table: NDArray[np.int64], row: int, utterance: SoundUtterance) -> None:
        """Write the next chunk of an utterance to one idle row, and with guidance to the next."""
        levels, level_0 = utterance.levels, utterance.chunk
        assert isinstance(levels, CachedLevels)
        assert level_0 is not None
        conditions = [levels.reserve(one, len(level_0)) for one in range(levels.conditions)]
        for own, (start, length, pages) in zip(table[row:], conditions, strict=False):
            own[Number.COUNT], own[Number.OWNER] = len(level_0), row
            own[Number.LENGTH], own[Number.START] = length, start
            for level, those in enumerate(pages):
                self._of(own, 2)[level, : len(those)] = those
        own = table[row]
        own[Number.STREAM], own[Number.BEGINS] = utterance.stream, levels.frames == 0
        own[Number.FRAME], own[Number.LEVELS] = levels.frames, levels.count
        own[Number.PARTNER] = row + levels.conditions - 1
        own.view(np.float64)[Number.STRENGTH : Number.RESCALE + 1] = levels.guidance
        self._of(own, 0)[:] = levels.knobs
        given = levels.given(levels.frames, level_0)
        self._of(own, 1)[: len(given)] = given
        self._of(own, 1)[len(given) :] = given[-1]  # padding, of which nothing is heard

    def _view(self, rows: Tensor, part: int) -> Tensor:
        return rows[:, self._slices[part]].view(-1, *self._shapes[part])

    def _of(self, row: NDArray[np.int64], part: int) -> NDArray[np.int64]:
        return row[self._slices[part]].reshape(self._shapes[part])


class CodecStreams:
    """Streams of a model's codec, each a row of a table, and one `unused`. One thread only."""

    @torch.inference_mode()
    def __init__(self, speech: SpeechModel, streams: int) -> None:
        codec = self._codec = speech.codec
        levels = speech.model.config.levels
        self._codebooks = codec.quantizer.codebooks[:levels]
        self._every = torch.arange(levels, device=self._codebooks.device)
        frames = speech.model.config.block_frames
        latent = codec.quantizer.codebooks.new_zeros(1, frames, codec.config.dimension)
        self._table = StreamTable(codec, latent, streams + 1)
        self._free = list(range(streams))
        self.unused = streams

    @property
    def free(self) -> int:
        """How many streams can be taken."""
        return len(self._free)

    def take(self) -> int | None:
        """Return a row; None if all are taken."""
        return self._free.pop() if self._free else None

    def give(self, stream: int) -> None:
        """Take back a row."""
        self._free.append(stream)

    def sound(self, codes: Tensor, levels: Tensor, streams: Tensor, begins: Tensor) -> Tensor:
        """Return the samples ``[B, N]`` of the next frames of some streams.

        Args:
            codes: ``[B, T, K]`` int64.
            levels: ``[B]`` int64, how many of the levels are heard.
            streams: ``[B]`` int64, the row of each.
            begins: ``[B]`` bool, those that begin with these frames.
        """
        heard = self._every < levels[:, None, None]
        entries = self._codebooks[self._every, codes].masked_fill(~heard[..., None], 0.0)
        state = self._table.read(streams, begins)
        samples = self._codec.sound(entries.sum(2), state)
        self._table.write(streams, state)
        return samples


class RecordedChunks:
    """The recorded chunks over one pool of pages. One thread only.

    Attributes:
        frames: The numbers of frames of a chunk; a last one is filled up.
        columns: The most positions of an utterance.
        prefixes: Reads prefixes of the finer levels.
    """

    @torch.inference_mode()
    def __init__(
        self,
        speech: SpeechModel,
        pool: PagePool,
        record: Record,
        sizes: ChunkSizes = ChunkSizes(),  # noqa: B008
        *,
        warm_ups: int = WARM_UPS,
    ) -> None:
        config, device = speech.model.config, speech.model.separator.device
        self._model, self._codebooks = speech.model, speech.codec.quantizer.codebooks
        self.columns, self.frames = sizes.columns, chunk_lengths(config.block_frames)
        gathers = "attend" not in speech.model.transformer.kernels.fused
        self._rows = [
            rows for rows in sizes.rows
            if rows == sizes.rows[0] or not gathers or rows * sizes.columns <= POSITIONS
        ]  # fmt: skip
        self.most = self._rows[-1]
        own = torch.arange(self.frames[-1], device=device)
        each = 1 if config.nar_mask == "causal" else config.block_frames
        self._reach = (own // each + 1) * each
        self.prefixes = RecordedPrefixes(
            speech.model, pool, range(1, config.levels), record, warm_ups=warm_ups
        )
        self._passes = speech.model.transformer.paged(pool)
        self._layout = RowLayout(
            levels=config.levels, frames=self.frames[-1], pages=sizes.columns // PAGE
        )
        self.streams = CodecStreams(speech, sizes.streams)
        self._idle = self._layout.idle(self.most, stream=self.streams.unused, page=pool.padding)
        self._table = torch.zeros(self._idle.shape, dtype=torch.int64, device=device)
        self._upload = Upload(self._table, _DEPTH)
        self._upload.send(self._idle)
        self._hop = speech.codec.config.hop
        self._downloads: dict[tuple[int, int], Download] = {}
        self._plays: dict[tuple[int, int, bool], Play] = {}
        # Largest first: the others then find all the memory that they need in the shared pool.
        for rows, frames in product(reversed(self._rows), reversed(self.frames)):
            results = torch.zeros(rows, frames * (config.levels + self._hop), device=device)
            self._downloads[rows, frames] = Download(results, _DEPTH)
            for light in (False, True):
                function = self._function(results, frames, light=light)
                self._plays[rows, frames, light] = record(function, warm_ups=warm_ups)

    def make(self, utterances: Sequence[SoundUtterance]) -> Sequence[SoundUtterance]:
        """Make the next chunk of the first utterance, and of others as long; return those."""
        started_s, frames = perf_counter(), self._filled_up(utterances[0])
        chosen: list[SoundUtterance] = []
        written: dict[SoundUtterance, int] = {}
        host, row = self._idle.copy(), 0
        for one in utterances:
            if self._filled_up(one) != frames or row + one.levels.conditions > self.most:
                continue
            chosen.append(one)
            try:
                self._layout.write(host, row, one)
            except OutOfPages as error:
                one.fail(error)
                continue
            written[one] = row
            row += one.levels.conditions
        if written:
            found = self.play(host, row, frames, light=all(one.levels.is_light for one in written))
            spent_s = (perf_counter() - started_s) / len(written)
            for one, own in written.items():
                self._give(one, found[own], frames, spent_s)
        return chosen

    def close(self) -> None:
        """Forget all functions; nothing can be made any more."""
        self._plays.clear()
        self.prefixes.close()

    def _filled_up(self, utterance: SoundUtterance) -> int:
        """Return the frames of the recorded chunk that holds its next one; 0: none does."""
        chunk = utterance.chunk
        if chunk is None:
            return 0
        return next(frames for frames in self.frames if frames >= len(chunk))

    @torch.inference_mode()
    def play(
        self, host: NDArray[np.int64], used: int, frames: int, *, light: bool
    ) -> NDArray[np.float32]:
        """Send rows, of which so many are used, play their chunk, and wait for what it brings."""
        rows = next(rows for rows in self._rows if rows >= used)
        self._upload.send(host)
        self._plays[rows, frames, light]()
        download = self._downloads[rows, frames]
        found: NDArray[np.float32] = download.wait(download.fetch())
        return found

    def _give(
        self, utterance: SoundUtterance, found: NDArray[np.float32], frames: int, spent_s: float
    ) -> None:
        """Give an utterance its row of the results: codes, then samples."""
        assert utterance.chunk is not None
        count, levels = len(utterance.chunk), self._model.config.levels
        codes = found[: frames * levels].astype(np.int64).reshape(frames, levels)
        samples = found[frames * levels :][: count * self._hop].copy()
        utterance.spent_s += spent_s
        own = torch.from_numpy(codes[:count, : utterance.levels.count].copy())
        utterance.take(own, lambda: finite(samples))

    def _function(self, results: Tensor, frames: int, *, light: bool) -> Callable[[], None]:
        """Return the chunk of the first rows, to be recorded."""
        model, rows, levels = self._model, len(results), self._model.config.levels
        table, reach = self._table[:rows], self._reach[:frames]
        own, pages = self._layout.chunk(table, frames), self._layout.pages(table)
        kind = (drawing.light if light else drawing.full)(levels - 1)

        def number(column: Number) -> Tensor:
            return table[:, column]

        def chunk() -> None:
            positions = table[:, Number.START, None] + torch.arange(frames, device=table.device)
            layout = self._passes.layout(
                positions, number(Number.LENGTH), number(Number.COUNT), reach
            )

            def feed(level: int, codes: Tensor) -> Tensor:
                x = model.embed_response(codes.flatten(0, 1), level)
                hidden, _ = self._passes.run(x, layout(pages[:, level - 1]))
                return model.logits(hidden, level).view(rows, frames, -1)

            codes = draw_chunk(own, feed, self._codebooks, kind)
            samples = self.streams.sound(
                codes, number(Number.LEVELS), number(Number.STREAM), number(Number.BEGINS) > 0
            )
            results[:, : frames * levels].copy_(codes.flatten(1))
            results[:, frames * levels :].copy_(samples)

        return chunk

"""Chunks of several utterances in one captured function: NAR levels and codec.

A row is one sequence of one utterance; its keys and values are pages of the pool that passes which
are not captured use, too, and what the codec remembers of it is a row of a table. What the host
decides goes up as one table of numbers before a chunk, codes and samples come back as one after it.
Everything is captured at the start, one function for each number of rows, of frames, and each kind:
*light* has greedy levels without guidance, *full* has everything.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import product
from time import perf_counter
from typing import Any, Final, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from app.engine.nar.chunks import chunk_lengths
from app.engine.nar.state import ChunkRows, SampleKind, sample_chunk
from app.engine.nar.utterance_decoder import UtteranceDecoder, finite
from gpu.graphs import Capture, Replay
from gpu.transfers import Download, Upload
from models.checkpoints.sources import SpeechModel
from models.codecs.streaming import StreamTable
from models.prefill_graphs import PrefillGraphRunner
from models.stack.paged_cache import PAGE, OutOfPages, PagePool
from models.stack.taps import Taps
from samplers import nar
from samplers.nar import NarRow

POSITIONS: Final = 16 * 1024
"""Rows times columns at most where torch's operators attend: they gather a layer's keys."""

_DEPTH: Final = 2  # of chunks on their way


class ChunkSizes(NamedTuple):
    """What is captured."""

    # Numbers of rows, ascending. Few: up to some 16 rows the weights take most of the time to read,
    # and a row that is not used costs next to nothing
    rows: Sequence[int] = (1, 4, 16)
    columns: int = 4096  # the most positions of an utterance, a multiple of `PAGE`
    # Utterances that may be under way; what the codec remembers of one is some 40 kB
    streams: int = 256


def row_dtype(levels: int, frames: int, pages: int) -> np.dtype[np.void]:
    """Return what the host says of a row of a chunk: fields of 8 bytes, or of arrays of them."""
    return np.dtype([
        ("stream", "i8"),  # its row of the codec's states
        ("begins", "i8"),  # whether its stream begins with this chunk
        ("count", "i8"),  # frames that are kept
        ("frame", "i8"),  # index of the first of them in the utterance
        ("length", "i8"),  # positions that the sequence holds
        ("start", "i8"),  # position id of the first frame
        ("owner", "i8"),  # the row whose codes it is fed
        ("partner", "i8"),  # the row that guides it; itself: none
        ("levels", "i8"),  # levels of the codes that are heard
        ("guidance", "f8", (2,)),  # strength and rescale
        ("knobs", "i8", (levels - 1, len(NarRow._fields))),
        ("codes", "i8", (frames, levels)),
        ("pages", "i8", (levels - 1, pages)),
    ])  # fmt: skip


def _write(table: NDArray[np.void], row: int, utterance: UtteranceDecoder) -> None:
    """Write the next chunk of an utterance to one idle row, and with guidance to the next."""
    levels = utterance.levels
    chunk = utterance.chunk
    assert chunk is not None
    levels.grow(chunk)
    count = chunk.end - chunk.start
    conditions = [levels.reserve(one, count) for one in range(levels.conditions)]
    for own, (start, length, pages) in zip(table[row:], conditions, strict=False):
        own["count"] = count
        own["owner"] = row
        own["length"] = length
        own["start"] = start
        for level, those in enumerate(pages):
            own["pages"][level, : len(those)] = those
    own = table[row]
    own["stream"] = utterance.stream
    own["begins"] = chunk.start == 0
    own["frame"] = chunk.start
    own["levels"] = levels.count
    own["partner"] = row + levels.conditions - 1
    own["guidance"] = levels.guidance
    own["knobs"] = levels.knobs
    known_codes = levels.known_codes_of(chunk)
    own["codes"][:count] = known_codes
    own["codes"][count:] = known_codes[-1]  # padding, of which nothing is heard


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

    def sound(
        self, codes: Tensor, counts: Tensor, levels: Tensor, streams: Tensor, begins: Tensor
    ) -> Tensor:
        """Return the samples ``[B, N]`` of the next frames of some streams.

        Args:
            codes: ``[B, T, K]`` int64.
            counts: ``[B]`` int64, how many of the frames there are. What fills them up is 0, as is
                what EnCodec has mirrored behind the end of an utterance that is too short for it.
            levels: ``[B]`` int64, how many of the levels are heard.
            streams: ``[B]`` int64, the row of each.
            begins: ``[B]`` bool, those that begin with these frames.
        """
        frames = torch.arange(codes.shape[1], device=codes.device)
        audible = (self._every < levels[:, None, None]) & (frames < counts[:, None])[..., None]
        entries = self._codebooks[self._every, codes].masked_fill(~audible[..., None], 0.0)
        state = self._table.read(streams, begins)
        samples = self._codec.sound(entries.sum(2), state)
        self._table.write(streams, state)
        return samples


class NarGraphRunner:
    """The captured chunks over one pool of pages. One thread only.

    Attributes:
        frames: The numbers of frames of a chunk; a last one is filled up.
        columns: The most positions of an utterance.
        prefixes: Reads prefixes of the NAR levels.
        aligned: Reads level 0 for its alignment; None if the model has no alignment head.
    """

    @torch.inference_mode()
    def __init__(
        self,
        speech: SpeechModel,
        pool: PagePool,
        capture: Capture,
        sizes: ChunkSizes = ChunkSizes(),  # noqa: B008
    ) -> None:
        config = speech.model.config
        device = speech.model.separator.device
        self._model = speech.model
        self._codebooks = speech.codec.quantizer.codebooks
        self.columns = sizes.columns
        self.frames = chunk_lengths(config.block_frames)
        gathers = not speech.model.transformer.kernels.runs("attend")
        self._rows = [
            rows for rows in sizes.rows
            if rows == sizes.rows[0] or not gathers or rows * sizes.columns <= POSITIONS
        ]  # fmt: skip
        self.most = self._rows[-1]
        own = torch.arange(self.frames[-1], device=device)
        each = 1 if config.nar_mask == "causal" else config.block_frames
        self._reach = (own // each + 1) * each
        self.prefixes = PrefillGraphRunner(speech.model, pool, range(1, config.levels), capture)
        self.aligned: PrefillGraphRunner | None = None
        if (head := config.alignment) is not None:
            self.aligned = PrefillGraphRunner(
                speech.model, pool, [0], capture, sizes.columns, Taps(queries=[head.layer])
            )
        self._passes = speech.model.transformer.paged(pool)
        self._row = row_dtype(config.levels, self.frames[-1], sizes.columns // PAGE)
        self.streams = CodecStreams(speech, sizes.streams)
        self._idle = np.zeros(self.most, self._row)  # of no utterance
        self._idle["stream"] = self.streams.unused
        self._idle["pages"] = pool.padding
        self._idle["begins"] = self._idle["count"] = 1
        self._idle["owner"] = self._idle["partner"] = range(self.most)
        self._table = torch.zeros(
            self.most, self._row.itemsize // 8, dtype=torch.int64, device=device
        )
        self._upload = Upload(self._table, _DEPTH)
        self._upload.send(_as_numbers(self._idle))
        self._hop = speech.codec.config.hop
        self._downloads: dict[tuple[int, int], Download] = {}
        self._replays: dict[tuple[int, int, bool], Replay] = {}
        # Largest first: the others then find all the memory that they need in the shared pool.
        for rows, frames in product(reversed(self._rows), reversed(self.frames)):
            results = torch.zeros(rows, frames * (config.levels + self._hop), device=device)
            self._downloads[rows, frames] = Download(results, _DEPTH)
            for light in (False, True):
                function = self._function(results, frames, light=light)
                self._replays[rows, frames, light] = capture(function)

    def make(self, utterances: Sequence[UtteranceDecoder]) -> Sequence[UtteranceDecoder]:
        """Make the next chunk of the first utterance, and of others as long; return those."""
        started_s = perf_counter()
        frames = self._filled_up(utterances[0])
        chosen: list[UtteranceDecoder] = []
        written: dict[UtteranceDecoder, int] = {}
        host = self._idle.copy()
        row = 0
        for one in utterances:
            if self._filled_up(one) != frames or row + one.levels.conditions > self.most:
                continue
            chosen.append(one)
            try:
                _write(host, row, one)
            except OutOfPages as error:
                one.fail(error)
                continue
            written[one] = row
            row += one.levels.conditions
        if written:
            found = self.replay(
                host, row, frames, light=all(one.levels.is_light for one in written)
            )
            spent_s = (perf_counter() - started_s) / len(written)
            for one, own in written.items():
                self._give(one, found[own], frames, spent_s)
        return chosen

    def close(self) -> None:
        """Forget all functions; nothing can be made any more."""
        self._replays.clear()
        self.prefixes.close()
        if self.aligned is not None:
            self.aligned.close()

    def _filled_up(self, utterance: UtteranceDecoder) -> int:
        """Return the frames of the captured chunk that holds its next one; 0: none does."""
        chunk = utterance.chunk
        if chunk is None:
            return 0
        return next(frames for frames in self.frames if frames >= chunk.end - chunk.start)

    @torch.inference_mode()
    def replay(
        self, host: NDArray[np.void], used: int, frames: int, *, light: bool
    ) -> NDArray[np.float32]:
        """Send rows, of which so many are used, play their chunk, and wait for what it brings."""
        rows = next(rows for rows in self._rows if rows >= used)
        self._upload.send(_as_numbers(host))
        self._replays[rows, frames, light]()
        download = self._downloads[rows, frames]
        found: NDArray[np.float32] = download.wait(download.fetch())
        return found

    def _give(
        self, utterance: UtteranceDecoder, found: NDArray[np.float32], frames: int, spent_s: float
    ) -> None:
        """Give an utterance its row of the results: codes, then samples."""
        chunk = utterance.chunk
        assert chunk is not None
        count = chunk.end - chunk.start
        levels = self._model.config.levels
        codes = found[: frames * levels].astype(np.int64).reshape(frames, levels)
        samples = found[frames * levels :][: count * self._hop].copy()
        utterance.spent_s += spent_s
        own = torch.from_numpy(codes[:count, : utterance.levels.count].copy())
        utterance.take(own, lambda: finite(samples))

    def _function(self, results: Tensor, frames: int, *, light: bool) -> Callable[[], None]:
        """Return the chunk of the first rows, to be captured."""
        model = self._model
        rows = len(results)
        levels = self._model.config.levels
        table = self._table[:rows]
        reach = self._reach[:frames]
        kinds = [nar.LIGHT if light else nar.FULL] * (levels - 1)
        kind = SampleKind(guided=not light, kept=True, levels=kinds)
        fields: Mapping[str, Any] = self._row.fields or {}

        def field(name: str) -> Tensor:
            """Return the view ``[rows, ...]`` of what each row says."""
            own, offset = fields[name][:2]
            part = table[:, offset // 8 : (offset + own.itemsize) // 8]
            part = part.view(torch.float64) if own.base.kind == "f" else part
            return part.view(-1, *own.shape) if own.shape else part[:, 0]

        known_codes = field("codes")[:, :frames]
        pages = field("pages")
        start = field("start")[:, None]
        own = ChunkRows(
            known_codes,
            *(field(name) for name in ("knobs", "frame", "owner", "partner", "guidance")),
        )

        def chunk() -> None:
            positions = start + torch.arange(frames, device=table.device)
            layout = self._passes.layout(positions, field("length"), field("count"), reach)

            def feed(level: int, codes: Tensor) -> Tensor:
                x = model.embed_response(codes.flatten(0, 1), level)
                hidden, _ = self._passes.run(x, layout(pages[:, level - 1]))
                return model.logits(hidden, level).view(rows, frames, -1)

            codes = sample_chunk(own, feed, self._codebooks, kind)
            samples = self.streams.sound(
                codes, field("count"), field("levels"), field("stream"), field("begins") > 0
            )
            results[:, : frames * levels].copy_(codes.flatten(1))
            results[:, frames * levels :].copy_(samples)

        return chunk


def _as_numbers(rows: NDArray[np.void]) -> NDArray[np.int64]:
    return rows.view(np.int64).reshape(len(rows), -1)
